plan --model qwen3-30b-a3b --cluster h200:8x2 --expert-parallel 8 --optimizer distributed --scheme megatron-flex:align=128 --set precision.recipe=nvfp4

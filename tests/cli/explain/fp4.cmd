explain --model qwen3-30b-a3b --cluster b200:8x2 --expert-parallel 8 --fsdp 2 --scheme megatron-flex:align=128 --optimizer distributed --set precision.recipe=nvfp4 --remat moe_act

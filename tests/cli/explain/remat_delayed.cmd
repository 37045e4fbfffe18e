explain --model deepseek-v3 --cluster h200:8x32 --expert-parallel 64 --scheme megatron-alltoall:align=16 --optimizer distributed --remat layernorm --set precision.recipe=delayed

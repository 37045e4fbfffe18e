plan --model qwen3-235b-a22b --cluster h200:8x8 --scheme megatron-alltoall --precision fp8 --routing uniform

plan --model qwen3-30b-a3b --cluster h100:8x4 --gpus 64 --scheme megatron-alltoall

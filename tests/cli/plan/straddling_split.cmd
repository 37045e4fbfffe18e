plan --model qwen3-30b-a3b --cluster gb200:72x2 --gpus 144 --scheme megatron-flex

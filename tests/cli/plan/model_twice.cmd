plan --model qwen3-30b-a3b --cluster h100:8x4 --model mixtral-8x7b

plan --from offload.json --model qwen3-30b-a3b --cluster h100:8x2

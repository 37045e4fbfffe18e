plan --until tomorrow --model qwen3-30b-a3b --cluster h200:8x1

plan --search --model qwen3-30b-a3b --cluster h100:8x8 --over pipeline=3

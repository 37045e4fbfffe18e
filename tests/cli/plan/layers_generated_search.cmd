plan --model qwen3-30b-a3b --cluster h100:8x4 --layers 2:6 --search

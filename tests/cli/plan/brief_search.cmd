plan --search --model qwen3-30b-a3b --cluster h100:8x2 --over pipeline=1 --over tensor=1 --over remat=full --scheme megatron-flex --optimizer distributed --global-batch 64 --price 2

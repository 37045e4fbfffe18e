plan --model qwen3-30b-a3b --cluster h100:8x1 --scheme transformers --optimizer sharded --fsdp 8 --remat full --sequences-per-gpu 1,2 --details

plan --model deepseek-v2-lite --cluster h100:8x1 --scheme transformers --optimizer sharded --fsdp 8 --remat full --details

plan --model qwen3-30b-a3b --cluster h100:8x8 --scheme megablocks --set fsdp2.prefetch=2

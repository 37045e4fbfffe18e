plan --model qwen3-30b-a3b --cluster h100:8x8 --scheme torchtitan --scheme megablocks --remat full --details

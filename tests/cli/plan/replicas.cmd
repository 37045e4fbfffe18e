plan --model qwen3-30b-a3b --cluster h200:8x4 --expert-parallel 8 --scheme torchtitan --set fsdp2.replicas=2 --details --wide

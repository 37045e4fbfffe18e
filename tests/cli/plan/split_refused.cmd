plan --model qwen3-30b-a3b --cluster h200:8x6 --expert-parallel all --scheme torchtitan --set fsdp2.replicas=4 --set fsdp2.reshard_after_forward=always --sequence-length 1024 --details

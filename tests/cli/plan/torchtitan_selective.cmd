plan --model qwen3-30b-a3b --cluster h100:8x1 --scheme torchtitan --remat selective_op --routing uniform --set cross_entropy=unfused --details

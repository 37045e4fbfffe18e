plan --model deepseek-v3 --cluster h100:8x4 --scheme megatron-flex --optimizer distributed

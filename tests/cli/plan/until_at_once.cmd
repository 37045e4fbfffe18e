plan --until oom --model deepseek-v3 --cluster h200:8x2 --optimizer distributed --scheme megatron-alltoall --stack none

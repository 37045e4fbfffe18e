plan --until oom --model qwen3-30b-a3b --cluster h200:8x2 --optimizer distributed --scheme megatron-alltoall --scheme gmm --stack none

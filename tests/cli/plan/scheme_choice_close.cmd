plan --model mixtral-8x7b --cluster h200 --scheme megatron-alltoall:policy=prob

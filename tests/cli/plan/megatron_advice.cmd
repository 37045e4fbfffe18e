plan --model mixtral-8x7b --cluster h100:8x1 --scheme megatron-alltoall --optimizer replicated --global-batch 32 --details

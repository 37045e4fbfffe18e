plan --job job.yaml --scheme megatron-alltoall:capacity_factor=1.25 --scheme megatron-alltoall:capacity_factor=1.25,policy=position --details

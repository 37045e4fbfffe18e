replay trace.h5 --job job.yaml --scheme megatron-alltoall:capacity_factor=1.25,policy=probs

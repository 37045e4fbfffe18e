replay trace.h5 --job too_small.yaml --scheme megatron-alltoall

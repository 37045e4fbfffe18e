replay trace.h5 --job job.yaml --scheme megatron-alltoall --advise

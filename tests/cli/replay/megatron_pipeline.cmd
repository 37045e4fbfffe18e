replay trace.h5 --job staged.yaml --scheme megatron-alltoall --stack megatron-h200-2026-11

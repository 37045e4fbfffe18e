replay trace.h5 --job bare.yaml --scheme megatron-alltoall --stack megatron-h200-2026-11 --format json

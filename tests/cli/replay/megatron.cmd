replay trace.h5 --job job.yaml --scheme megatron-alltoall --scheme megatron-flex --scheme gmm --stack maxtext-rocm-2026-05,megatron-h200-2026-11

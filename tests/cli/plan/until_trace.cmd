plan --until oom,step=1.01 --job job.yaml --trace trace.h5 --scheme megatron-alltoall --optimizer distributed --sequences-per-gpu 2 --memory-fraction 0.80901 --precision bf16

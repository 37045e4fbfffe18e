plan --job job.yaml --trace trace.h5 --imbalance 0.5

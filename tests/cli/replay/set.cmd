replay trace.h5 --job job.yaml --scheme gmm --precision fp32 --memory-fraction 0.5 --micro-batches 2

replay trace.h5 --job job.yaml --expert-parallel 3

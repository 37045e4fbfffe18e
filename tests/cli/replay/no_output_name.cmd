replay trace.h5 --job job.yaml --output ''

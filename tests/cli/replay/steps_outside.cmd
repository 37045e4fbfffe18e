replay trace.h5 --job job.yaml --steps 2:5

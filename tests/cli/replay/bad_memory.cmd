replay --job job.yaml trace.h5 --memory 4

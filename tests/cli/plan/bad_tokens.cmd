plan --job job.yaml --trace trace.h5 --tokens lots

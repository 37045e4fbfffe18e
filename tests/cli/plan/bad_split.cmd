plan --job job.yaml --trace trace.h5 --expert-parallel 3

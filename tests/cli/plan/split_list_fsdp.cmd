plan --job job.yaml --trace trace.h5 --expert-parallel 2,4 --fsdp 2

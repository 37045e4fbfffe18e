replay trace.h5 --job job.yaml --expert-parallel 2 --fsdp 2 --scheme gmm

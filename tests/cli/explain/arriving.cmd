explain --job job.yaml --scheme megablocks --trace trace.h5 --rank 1

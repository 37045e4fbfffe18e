plan --job job.yaml --trace trace.h5 --routing-tokens 1M

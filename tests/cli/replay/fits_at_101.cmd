replay trace.h5 --job job.yaml --fits-at 101

replay trace.h5 --job job.yaml --drop-at-most 5 --fits-at 99.9

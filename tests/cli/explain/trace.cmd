explain --job job.yaml --scheme gmm --trace trace.h5 --rank 3

plan --job job.yaml --trace trace.h5 --format csv --scheme gmm --scheme dense:capacity_factor=1

replay trace.h5 --job job.yaml --format json --scheme dense:capacity_factor=1.25 --scheme gmm-deepep

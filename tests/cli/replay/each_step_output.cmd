replay trace.h5 --job job.yaml --each-step --scheme gmm --scheme dense:capacity_factor=1 --output each.h5

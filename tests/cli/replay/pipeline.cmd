replay trace.h5 --job staged.yaml --scheme gmm --scheme dense:capacity_factor=1.25

replay trace.h5 --job bare.yaml --scheme gmm:buffer_factor=0.001 --fits-at 1

replay trace.h5 --job pipeline.yaml --scheme gmm

replay trace.h5 --job bare.yaml --scheme gmm --format json

replay trace.h5 --job bare.yaml --scheme gmm --stack xla-cuda-0.10.2

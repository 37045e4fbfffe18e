replay trace.h5 --job micro.yaml --scheme gmm --stack maxtext-rocm-2026-05

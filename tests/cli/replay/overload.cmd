replay trace.h5 --job job.yaml --scheme gmm --scheme gmm-deepep --stack maxtext-rocm-2026-05 --overload

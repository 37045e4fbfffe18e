replay trace.h5 --job job.yaml --scheme gmm --stack maxtext-rocm-2026-05,maxtext-rocm-2026-04

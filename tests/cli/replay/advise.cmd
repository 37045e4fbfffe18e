replay trace.h5 --job job.yaml --scheme gmm --scheme dense:capacity_factor=2 --scheme hybrid-ep --stack maxtext-rocm-2026-05 --advise

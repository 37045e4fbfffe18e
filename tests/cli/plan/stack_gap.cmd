plan --job job.yaml --stack maxtext-rocm-2026-05,,

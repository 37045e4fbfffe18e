plan --job job.yaml --expert-parallel 4,

replay --job job.yaml

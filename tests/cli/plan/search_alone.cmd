plan --job job.yaml --gpus-at-most 16

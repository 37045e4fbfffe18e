plan --job job.yaml --set wonder

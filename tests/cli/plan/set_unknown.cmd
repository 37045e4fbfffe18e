plan --job job.yaml --set wonder=1

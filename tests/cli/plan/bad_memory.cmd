plan --job job.yaml --memory 4

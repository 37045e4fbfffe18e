plan --job job.yaml --tokens 500

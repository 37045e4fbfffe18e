plan --job job.yaml --ep 4

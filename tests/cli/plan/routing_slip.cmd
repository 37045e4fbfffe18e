plan --job job.yaml --routing unifrom

plan --job job.yaml --routing collapse:rise=1000

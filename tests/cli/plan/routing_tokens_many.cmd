plan --job job.yaml --routing-tokens 10B

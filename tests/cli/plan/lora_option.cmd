plan --job job.yaml --lora-rank 16

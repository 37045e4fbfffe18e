plan --job job.yaml --lora-targets attention

plan --job job.yaml --lora 16

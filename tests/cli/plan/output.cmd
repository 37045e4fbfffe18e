plan --job job.yaml --output plan.json

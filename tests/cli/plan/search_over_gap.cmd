plan --search --job job.yaml --over micro-batches=1,,2

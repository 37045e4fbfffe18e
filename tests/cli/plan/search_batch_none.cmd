plan --search --global-batch-at-most none --job job.yaml

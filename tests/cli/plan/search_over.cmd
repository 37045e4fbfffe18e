plan --search --job job.yaml --over tensr=2

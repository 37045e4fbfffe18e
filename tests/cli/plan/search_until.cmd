plan --search --job job.yaml --until oom

plan --job job.yaml --sequences-per-gpu 1-8

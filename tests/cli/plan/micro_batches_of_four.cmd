plan --job job.yaml --micro-batches 3 --sequences-per-gpu 4

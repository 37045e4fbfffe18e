explain --job job.yaml --scheme ring --format json --sequences-per-gpu 1

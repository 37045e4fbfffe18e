explain --job job.yaml --scheme gmm --rank 4

explain --job job.yaml --scheme gmm --stack counted --rank 1

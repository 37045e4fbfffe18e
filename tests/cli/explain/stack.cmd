explain --job job.yaml --scheme gmm --scheme dense:capacity_factor=1.25 --stack counted

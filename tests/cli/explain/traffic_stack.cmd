explain --job job.yaml --scheme gmm --traffic --stack counted

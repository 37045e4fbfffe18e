explain --job job.yaml --scheme gmm-deepep

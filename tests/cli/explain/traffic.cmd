explain --job job.yaml --scheme ring --scheme gmm-deepep --traffic

explain --job pipeline.yaml --scheme gmm

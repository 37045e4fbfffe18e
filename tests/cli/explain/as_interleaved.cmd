explain --job pipeline.yaml --scheme gmm --as simumax

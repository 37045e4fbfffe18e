explain --job bare.yaml --scheme gmm --traffic

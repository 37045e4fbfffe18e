explain --job bare.yaml --scheme gmm --stack counted

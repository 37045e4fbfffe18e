explain --job bare.yaml --scheme gmm --as primus

explain --job job.yaml --scheme gmm --set batch.sequence_length=0

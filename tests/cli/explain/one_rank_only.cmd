explain --job job.yaml --scheme scattermoe

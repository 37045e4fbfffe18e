explain --job job.yaml --scheme gmm --set remat=none --set batch.sequences_per_gpu=1,2 --format csv

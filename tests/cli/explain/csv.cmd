explain --job job.yaml --scheme dense:capacity_factor=1.25 --format csv

plan --job job.yaml --routing collapse:peak=8,recovery=1 --scheme gmm --scheme dense:capacity_factor=1.25 --details

plan --job job.yaml --routing max-violation:violation=0 --scheme gmm --stack none --details

plan --job job.yaml --scheme gmm --scheme megatron-alltoall:capacity_factor=1.25,policy=probs --drop-at-most 0 --details

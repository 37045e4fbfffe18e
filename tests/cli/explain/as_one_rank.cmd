explain --job job.yaml --scheme sonicmoe --as megatron

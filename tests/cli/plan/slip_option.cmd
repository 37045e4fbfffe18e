plan --job job.yaml --seqence-length 4096

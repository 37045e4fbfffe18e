replay trace.h5 --job job.yaml --scheme moe-dedup:buffer_factor=2,max_shards=1.5

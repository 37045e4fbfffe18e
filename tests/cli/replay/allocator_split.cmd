replay trace.h5 --job job.yaml --allocator max_split_size_mb:7

replay trace.h5 --job job.yaml --scheme ring --allocator expandable_segments:True

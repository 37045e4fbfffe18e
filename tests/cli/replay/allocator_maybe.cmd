replay trace.h5 --job job.yaml --allocator expandable_segments:maybe

replay trace.h5 --job bare.yaml --scheme megatron-alltoall --allocator garbage_collection_threshold:0.6

replay trace.h5 --job bare.yaml --scheme megatron-alltoall --allocator garbage_collection_threshold:0.6,per_process_memory_fraction:0.9

plan --model olmoe-1b-7b --cluster h200:8x1 --scheme megatron-alltoall --optimizer distributed --tensor 2 --global-batch 32 --micro-batches 2 --sequence-length 1024 --details

plan --model olmoe-1b-7b --cluster h200:8x1 --expert-parallel 8 --scheme megatron-alltoall --optimizer distributed --set memory_fraction=0.133 --details

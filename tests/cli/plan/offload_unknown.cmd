plan --model olmoe-1b-7b --cluster h200:8x8 --optimizer distributed --remat none --scheme megatron-alltoall --set offload_modules=mlp_norm

replay trace.h5 --job job.yaml --scheme gmm --scheme megatron-alltoall --remat moe_act --each-step --format json

plan --model olmoe-1b-7b --cluster h200-8x8 --scheme megatron-alltoall --optimizer distributed --remat moe_act+mla_up_proj

score measured/megatron_h200_reserved.csv --traces nowhere

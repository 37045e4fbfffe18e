score megatron/megatron_bare_layers.csv --format csv

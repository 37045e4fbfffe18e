score published/deepseek3_mi355x_remat_fsdp.csv --format csv

explain --model mixtral-8x7b --cluster h200:8x1 --set "parallel={expert: 4, fsdp: 1, tensor: 2}" --scheme "dense:capacity_factor=1.25"

explain --model mixtral-8x7b --cluster h200:8x1 --set "parallel={expert: 2, fsdp: 4, context: 2}" --scheme "dense:capacity_factor=1,layout=gathered"

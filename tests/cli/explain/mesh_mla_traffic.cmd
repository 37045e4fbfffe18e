explain --traffic --model deepseek-v3 --cluster h200:8x8 --set "parallel={expert: 8, fsdp: 4, tensor: 2, context: 2}" --scheme gmm

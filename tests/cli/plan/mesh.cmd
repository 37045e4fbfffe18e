plan --model mixtral-8x7b --cluster h200:8x2 --set "parallel={expert: 4, fsdp: 2, tensor: 2, context: 2}" --scheme gmm --details

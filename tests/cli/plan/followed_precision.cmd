plan --model mixtral-8x7b --cluster h200:8x8 --scheme gmm --sequences-per-gpu 1 --set precision.optimizer=bf16 --set precision.gradients=bf16 --details

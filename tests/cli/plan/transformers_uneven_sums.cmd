plan --model mixtral-8x7b --cluster h200:8x8 --scheme transformers --set precision.optimizer=bf16

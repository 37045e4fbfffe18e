plan --model mixtral-8x7b --cluster tpu-v5p --scheme gmm --scheme gmm:buffer_factor=2 --scheme gmm:buffer_factor=2.0

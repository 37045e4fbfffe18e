plan --model deepseek-v4-flash --cluster h100-8x8 --scheme gmm --stack xla-cuda-0.12

plan --model deepseek-v3 --cluster h200:8x2 --scheme gmm --details

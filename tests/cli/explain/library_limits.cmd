explain --model deepseek-v3 --cluster h200:8x8 --scheme deepep-ll

plan --model mixtral-8x7b --cluster h200:8x8 --expert-parallel 8 --sequences-per-gpu 1 --scheme gmm --scheme dense:capacity_factor=1.25 --routing-tokens 64k

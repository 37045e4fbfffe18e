plan --model olmoe-1b-7b --cluster h200:8x1 --scheme dense:capacity_factor=1.25 --scheme gmm --routing uniform --precision bf16 --details

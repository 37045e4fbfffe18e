plan --search --model olmoe-1b-7b --cluster h200:8x1 --scheme gmm --global-batch 48 --sequences-per-gpu 4

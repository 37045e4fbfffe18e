plan --search --model olmoe-1b-7b --cluster mi355x:8x1 --scheme gmm --sequences-per-gpu 8 --over expert-parallel=8 --over remat=full --over micro-batches=1

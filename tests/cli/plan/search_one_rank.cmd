plan --search --model olmoe-1b-7b --cluster h200:1x1 --scheme gmm --scheme gmm-deepep --sequences-per-gpu 1,2 --over pipeline=1 --over micro-batches=1 --over virtual-stages=0 --over remat=full

plan --search --imbalance 1.5 --job job.yaml --trace trace.h5 --scheme gmm --scheme dense:capacity_factor=1 --sequences-per-gpu 1,2,4 --over pipeline=1,2 --over micro-batches=1 --drop-at-most 50

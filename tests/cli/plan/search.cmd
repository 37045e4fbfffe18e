plan --search --job job.yaml --trace trace.h5 --sequences-per-gpu 1,2,4 --over pipeline=1,2 --over micro-batches=1,2 --scheme gmm --scheme dense:capacity_factor=1 --scheme dense:capacity_factor=4

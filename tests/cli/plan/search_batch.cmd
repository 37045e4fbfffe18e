plan --search --price 2.5 --global-batch-at-most 256 --job job.yaml --trace trace.h5 --scheme gmm --sequences-per-gpu 1,2,4,8 --over pipeline=1,2 --over micro-batches=1 --details

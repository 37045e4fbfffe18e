plan --search --job job.yaml --trace trace.h5 --memory-fraction 0.001 --scheme gmm --sequences-per-gpu 8,16 --over pipeline=1 --over micro-batches=1 --details

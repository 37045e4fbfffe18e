replay trace.h5 --job job.yaml --sequences-per-gpu 1,2,5 --scheme gmm

replay trace.h5 --job job.yaml --steps 1:3 --layers 1 --expert-parallel 2 --scheme gmm

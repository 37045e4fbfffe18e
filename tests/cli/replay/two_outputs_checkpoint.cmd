replay trace.h5 --job job.yaml --scheme gmm --output two.h5 --checkpoint ./two.h5

explain --job job.yaml --scheme gmm --as simumax --trace trace.h5 --format csv

plan --search --price 2.5 --job job.yaml --trace trace.h5 --scheme gmm --details

plan --job job.yaml --trace trace.h5 --sequences-per-gpu 1,2 --tokens 1B --details

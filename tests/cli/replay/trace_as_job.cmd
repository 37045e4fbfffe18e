replay job.yaml --job trace.h5

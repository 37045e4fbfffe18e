replay trace.h5 --job job.yaml --scheme megablocks --advise

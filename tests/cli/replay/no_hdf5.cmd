replay text.h5 --job job.yaml

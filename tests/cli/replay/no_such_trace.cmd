replay nowhere.h5 --job job.yaml

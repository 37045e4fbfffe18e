replay trace.h5 --job nowhere.yaml

replay trace.h5 --job distributed.yaml

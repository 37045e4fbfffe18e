replay trace.h5 --job job.yaml --scheme gmm --balancer echo:replicas=4,every=1

replay trace.h5 --job job.yaml --scheme gmm --balancer nobody:replicas=3

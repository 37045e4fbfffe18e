replay trace.h5 --job job.yaml --scheme gmm --balancer eplb:replicas=3,every=1

replay trace.h5 --job job.yaml --scheme gmm --scheme hybrid-ep --balancer eplb:replicas=4,every=1

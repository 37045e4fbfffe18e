replay trace.h5 --job job.yaml --scheme gmm --scheme ring --remat moe_act

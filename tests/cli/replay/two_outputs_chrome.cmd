replay trace.h5 --job job.yaml --scheme gmm --chrome-trace two.json --output two.json

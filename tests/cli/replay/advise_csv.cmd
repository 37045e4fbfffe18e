replay trace.h5 --job job.yaml --scheme gmm --advise --overload --format csv

replay trace.h5 --job bad_job.yaml

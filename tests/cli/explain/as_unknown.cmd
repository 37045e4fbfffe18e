explain --job job.yaml --scheme gmm --as deepspeed

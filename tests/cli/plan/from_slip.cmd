plan --from slip.yaml --cluster h100:8x16

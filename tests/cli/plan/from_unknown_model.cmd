plan --from maxtext:x.yml --cluster h100:8x1

plan --from lora.yml --cluster h100:8x1

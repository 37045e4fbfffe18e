job lora.yml

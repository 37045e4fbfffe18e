plan --from accelerate.yaml --model qwen3-30b-a3b --cluster h100:8x2 --set batch.sequence_length=4096

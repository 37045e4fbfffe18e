trace import megatron-routr a.jsonl --output o.h5

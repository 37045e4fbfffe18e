trace import megatron-router rank.jsonl --output o.h5 --experts 8 --top-k 2

plan --model qwen3-30b-a3b --cluster h200:8x4 --expert-parallel 1 --scheme transformers --optimizer sharded --set fsdp2.replicas=2

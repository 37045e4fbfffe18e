plan --model qwen3-30b-a3b --cluster h100:6x4 --expert-parallel 8 --scheme megatron-flex --scheme megatron-alltoall --optimizer distributed --stack none --details

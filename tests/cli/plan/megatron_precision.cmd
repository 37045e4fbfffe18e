plan --model qwen3-30b-a3b --cluster h100 --gpus 16 --expert-parallel 8 --optimizer distributed --scheme megatron-alltoall --sequence-length 512 --sequences-per-gpu 4 --micro-batches 4 --details

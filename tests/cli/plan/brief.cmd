plan --model qwen3-30b-a3b --cluster h100:8x2 --sequences-per-gpu 1,2,4 --expert-parallel 8,16 --scheme megatron-flex --scheme megatron-alltoall --optimizer distributed --price 2

plan --until step=1.1 --model qwen3-30b-a3b --cluster h200:8x1 --sequence-length 512 --optimizer distributed --scheme megatron-alltoall --format csv

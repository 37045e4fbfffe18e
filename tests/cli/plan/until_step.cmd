plan --until step=1.1 --routing k-hot:hot=16 --model qwen3-30b-a3b --cluster h200:8x1 --sequence-length 1024 --optimizer distributed --scheme megatron-alltoall

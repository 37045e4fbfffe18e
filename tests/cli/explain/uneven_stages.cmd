explain --model qwen3-30b-a3b --cluster h200:8x5 --optimizer distributed --scheme megatron-alltoall --set parallel.expert=8 --pipeline 5 --sequences-per-gpu 5 --micro-batches 5 --sequence-length 256

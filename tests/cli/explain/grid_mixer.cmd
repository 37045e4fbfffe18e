explain --model kimi-linear-48b-a3b --cluster h200:8x8 --set parallel.expert=8 --tensor 2 --expert-tensor 1 --optimizer distributed --scheme megatron-alltoall

explain --model mixtral-8x7b --cluster h200:8x1 --set parallel.expert=4 --tensor 2 --expert-tensor 1 --optimizer distributed --scheme megatron-alltoall --as primus

explain --model deepseek-v3.2 --cluster h200:8x32 --set parallel.expert=64 --tensor 2 --context 2 --expert-tensor 1 --optimizer distributed --scheme megatron-alltoall

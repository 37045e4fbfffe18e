explain --traffic --model qwen3-next-80b-a3b --cluster h200:8x8 --set parallel.expert=16 --tensor 2 --context 2 --expert-tensor 1 --optimizer distributed --scheme megatron-alltoall

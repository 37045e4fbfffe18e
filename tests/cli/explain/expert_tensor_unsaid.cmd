explain --model qwen3-30b-a3b --cluster h200:8x4 --tensor 2 --context 4 --optimizer distributed --scheme megatron-alltoall --expert-parallel 32

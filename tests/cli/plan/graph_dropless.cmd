plan --model qwen3-30b-a3b --cluster h100:8x8 --expert-parallel 8 --scheme megatron-alltoall --optimizer distributed --set cuda_graph_impl=full_iteration

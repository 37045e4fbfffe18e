plan --model qwen3-30b-a3b --cluster h100:8x8 --expert-parallel 8 --optimizer distributed --scheme megatron-flex --set cuda_graph_impl=local

plan --model qwen3-30b-a3b --cluster h100:8x8 --expert-parallel 8 --scheme dense:capacity_factor=1.25 --set cuda_graph_impl=transformer_engine

plan --model olmoe-1b-7b --cluster h200:8x1 --scheme megatron-flex --pipeline 7

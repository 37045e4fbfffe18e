plan --model mixtral-8x7b --cluster h100:8x1 --scheme megatron-alltoall --optimizer distributed --sequences-per-gpu 2 --set finetune.lora_rank=16 --set optimizer_algorithm=adam --details

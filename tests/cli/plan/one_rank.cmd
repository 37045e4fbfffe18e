plan --model olmoe-1b-7b --cluster h100:8x2 --scheme transformers --scheme sonicmoe --precision bf16

plan --model olmoe-1b-7b --cluster h100:8x1 --pipeline 2 --set parallel.pipeline=4

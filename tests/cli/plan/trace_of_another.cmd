plan --model olmoe-1b-7b --cluster h100:8x1 --scheme gmm --sequence-length 256 --trace trace.h5

plan --model olmoe-1b-7b --cluster h100:8x1 --routing uniform --routing zipf

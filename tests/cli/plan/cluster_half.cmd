plan --model olmoe-1b-7b --cluster h100:4

plan --model olmoe-1b-7b

plan --search --model olmoe-1b-7b --cluster h100:8x1 --over tensor=1 --over tensor=2

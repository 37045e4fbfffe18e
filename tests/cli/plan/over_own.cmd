plan --search --model olmoe-1b-7b --cluster h100:8x1 --pipeline 4 --over pipeline=1,2

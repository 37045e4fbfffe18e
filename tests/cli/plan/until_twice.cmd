plan --model olmoe-1b-7b --cluster h200:8x1 --until oom --until step=1.1

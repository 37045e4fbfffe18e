plan --cluster h100:8x1 --model 'a
b.json'

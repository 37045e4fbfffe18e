plan --model mixtral-8x7b --cluster h100:8x4 --set schemes=[]

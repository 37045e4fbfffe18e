plan --model mixtral-8x7b --cluster h200 --tensor 3

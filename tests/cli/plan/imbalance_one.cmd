plan --model mixtral-8x7b --cluster h200 --imbalance 1.5 --set parallel.expert=1

plan --model mixtral-8x7b --cluster h200 --set batch.micro_batches=3,remat=full

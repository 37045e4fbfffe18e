explain --model mixtral-8x7b --cluster h100 --gpus 16 --scheme gmm --sequence-length 2048 --remat none --format csv

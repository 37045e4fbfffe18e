verify --device gpu --gpus 2

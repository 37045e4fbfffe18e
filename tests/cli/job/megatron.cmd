job train.sh --cluster h100:8x4

job train.sh

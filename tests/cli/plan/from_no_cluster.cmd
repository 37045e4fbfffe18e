plan --from train.sh

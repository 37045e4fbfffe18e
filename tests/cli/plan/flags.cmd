plan --from train.sh --cluster h100:8x4 --flags bridge --stack none

plan --from slip.sh --cluster h100:8x4 --model mixtral-8x7b

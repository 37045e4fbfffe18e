plan --from maxtext_stages.sh --cluster h100:8x1

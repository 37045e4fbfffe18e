plan --from maxtext_stages_less.sh --cluster h100:8x1

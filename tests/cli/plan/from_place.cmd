plan --from odd.sh --cluster h100:8x4

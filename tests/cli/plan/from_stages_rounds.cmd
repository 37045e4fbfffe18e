plan --from stages.toml --cluster h100:8x32 --sequences-per-gpu 17

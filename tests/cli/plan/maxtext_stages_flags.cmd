plan --model deepseek-v2-lite --cluster h100:8x1 --scheme gmm --pipeline 2 --expert-parallel 4 --sequence-length 1024 --routing uniform --sequences-per-gpu 1 --flags maxtext

plan --model qwen3-30b-a3b --cluster h100:8x1 --scheme torchtitan --optimizer sharded --expert-parallel 8 --sequences-per-gpu 16 --micro-batches 2

calibrate memory published/deepseek3_mi355x_2026_04.csv --stack xla-cuda-0.10.2 --leave-out nope

calibrate time published/deepseek3_mi355x_2026_04.csv --stack maxtext-rocm-2026-04 --leave-out nope

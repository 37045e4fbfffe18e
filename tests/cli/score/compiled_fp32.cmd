score compiled/maxtext_fp32.csv

score runs_column.csv

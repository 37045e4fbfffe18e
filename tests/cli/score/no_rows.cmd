score no_rows.csv

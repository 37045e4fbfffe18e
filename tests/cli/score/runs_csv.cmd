score runs_skipped.csv --format csv

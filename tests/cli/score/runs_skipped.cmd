score runs_skipped.csv

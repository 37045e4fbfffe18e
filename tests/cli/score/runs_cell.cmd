score runs_cell.csv

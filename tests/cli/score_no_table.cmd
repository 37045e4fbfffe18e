score none.csv

score kernels/h200_dispatch.csv

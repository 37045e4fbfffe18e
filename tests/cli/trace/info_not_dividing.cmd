trace info trace.h5 --expert-parallel 5

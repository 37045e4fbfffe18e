trace slice trace.h5 --record r --steps 0:1

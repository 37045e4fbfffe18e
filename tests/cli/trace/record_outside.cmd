trace slice trace.h5 --record r --layer 99

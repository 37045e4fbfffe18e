replay trace.h5

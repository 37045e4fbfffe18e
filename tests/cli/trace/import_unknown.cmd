trace import pickle a.pt --output o.h5

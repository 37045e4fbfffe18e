trace import ids.npz --output o.h5

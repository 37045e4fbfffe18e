report trace.h5 --output page.html

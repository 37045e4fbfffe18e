help job

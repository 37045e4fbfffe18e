JOBS = {}

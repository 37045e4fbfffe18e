model job.yaml.json

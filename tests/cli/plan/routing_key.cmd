plan --job job.yaml --routing zipf:exponnt=0.5

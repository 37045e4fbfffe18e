plan --from nemo:run.yaml

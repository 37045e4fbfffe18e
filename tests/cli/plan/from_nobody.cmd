plan --from paxml:run.yaml

plan --from hello.yml --cluster h100

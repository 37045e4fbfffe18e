replay --help

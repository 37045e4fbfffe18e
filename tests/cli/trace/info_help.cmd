trace info --help

trace import --help

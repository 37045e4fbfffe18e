model gpt-oss-20b --layers

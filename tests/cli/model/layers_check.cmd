model gpt-oss-20b --layers --check 20B

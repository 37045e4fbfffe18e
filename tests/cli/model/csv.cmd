model gpt-oss-20b --format csv

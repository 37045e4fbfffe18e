model qwen3-next-80b-a3b --format json --sequence-length 32768

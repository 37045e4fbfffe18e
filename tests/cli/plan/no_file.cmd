plan --model gpt-oss-20b --cluster h200:8x2 --set schemes=gmm,ring --stack none --details

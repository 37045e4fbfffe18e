plan --model deepseek-v3 --cluster mi355x:8x16 --scheme primus-syncfree --optimizer distributed --pipeline 4 --set store_param_remainders=true --routing uniform

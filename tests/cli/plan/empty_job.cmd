plan --job ''

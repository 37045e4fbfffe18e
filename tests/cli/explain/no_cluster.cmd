explain --model mixtral-8x7b --scheme gmm

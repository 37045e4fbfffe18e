plan --model olmoe-1b-7b --cluster h200:1x8 --scheme gmm --scheme ragged --stack none

explain --model olmoe-1b-7b --cluster h200:4x8 --scheme dense:capacity_factor=1.25

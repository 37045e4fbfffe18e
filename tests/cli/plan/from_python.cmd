plan --from recipe.py --cluster h100

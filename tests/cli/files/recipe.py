"""A recipe, which is not read."""
recipe = {"num_nodes": 8}

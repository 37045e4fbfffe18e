model --diff mixtral-8x7b mixtral-8x22b --format json

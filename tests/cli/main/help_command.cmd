help model

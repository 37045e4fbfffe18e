fly

"""Training of models: compile, fit, evaluate and predict, and their parts."""

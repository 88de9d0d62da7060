"""How models are trained: compile, fit, evaluate and predict, and what they are made of."""

"""Models as graphs of operations on tensors that have a shape but no values yet."""

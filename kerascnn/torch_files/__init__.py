"""Weights of PyTorch: its files, read without PyTorch, and how our layers take them."""

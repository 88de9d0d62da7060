"""Small image data sets, loaded as NumPy arrays."""

from kerascnn.datasets import digits, fashion_mnist, mnist

__all__ = ["digits", "fashion_mnist", "mnist"]

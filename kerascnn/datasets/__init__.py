"""Small image data sets, loaded as NumPy arrays."""

from kerascnn.datasets import cifar10, cifar100, digits, fashion_mnist, mnist

__all__ = ["cifar10", "cifar100", "digits", "fashion_mnist", "mnist"]

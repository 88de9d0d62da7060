"""Small image data sets, loaded as NumPy arrays."""

from kerascnn import former_names
from kerascnn.datasets import cifar10, cifar100, digits, fashion_mnist, mnist

__all__ = ["cifar10", "cifar100", "digits", "fashion_mnist", "mnist"]

__getattr__ = former_names.module_getattr(__name__)

"""Data sets for the host, under the names of `tf.data`."""

from kerascnn.data.cardinality import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from kerascnn.data.dataset import AUTOTUNE, Dataset
from kerascnn.data.elements import TensorSpec

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "Dataset",
    "TensorSpec",
]

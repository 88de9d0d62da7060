"""The reference networks that every benchmark trains, and their data. Only NumPy is needed.

All networks take uint8 images of shape (28, 28, 1) and scale them to [0, 1]. Relu and 2 x 2
max-pooling follow each convolution. Weights start as He normal where plain SGD trains, and as
Glorot uniform in net D. A to D are as small as first networks are; E has the widths of larger ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np


class Net(NamedTuple):
    convolutions: list[tuple[int, int, str]]  # filters, kernel size, padding
    bias: bool
    hidden: list[int]  # units of the dense layers with relu before the last layer
    dropout: float
    optimizer: str
    learning_rate: float
    batch_size: int
    initializer: str


NETS = {
    "A": Net([(16, 3, "same")], False, [], 0.0, "sgd", 0.01, 64, "he_normal"),
    "B": Net([(6, 5, "valid"), (16, 5, "valid")], True, [120], 0.0, "sgd", 0.01, 64, "he_normal"),
    "C": Net([(32, 3, "same"), (64, 3, "same")], True, [128], 0.0, "sgd", 0.01, 64, "he_normal"),
    "D": Net(
        [(32, 3, "valid"), (64, 3, "valid")], True, [], 0.5, "adam", 1e-3, 128, "glorot_uniform"
    ),
    "E": Net(
        [(64, 3, "same"), (128, 3, "same"), (256, 3, "same")],
        *(True, [256], 0.0, "sgd", 0.01, 128, "he_normal"),
    ),
}
IMAGE_SIZE = 28
CLASSES = 10


class Case(NamedTuple):
    """A network with a batch size, written "C" for its own size or "C@256"."""

    net: str
    batch_size: int

    @classmethod
    def parse(cls, text: str) -> Case:
        net, _, batch_size = text.partition("@")
        if net not in NETS or not (batch_size.isdigit() or not batch_size):
            raise ValueError(f"{text!r} is no net: write one of {', '.join(NETS)}, or C@256")
        return cls(net, int(batch_size or NETS[net].batch_size))

    def __str__(self) -> str:
        usual = self.batch_size == NETS[self.net].batch_size
        return self.net if usual else f"{self.net}@{self.batch_size}"


class Data(NamedTuple):
    x_train: np.ndarray  # uint8 (samples, 28, 28)
    y_train: np.ndarray  # uint8 (samples,)
    x_test: np.ndarray
    y_test: np.ndarray

    def save(self, path: Path) -> None:
        np.savez(path, **self._asdict())

    @classmethod
    def load(cls, path: str | Path) -> Data:
        with np.load(path) as arrays:
            return cls(*(arrays[name] for name in cls._fields))

"""Tensors of networks of torchvision and timm, by name, and what those predict with them.

Each text file has the names and shapes of one network's tensors, and the first scores of the real
network for two made-up images, with weights that are made from the names. So a test needs neither
library. `python -m tests.applications.torch_tables` writes the files anew where both are installed.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
# How a module's tensors end, for those that are not listed one by one.
KINDS = {
    "w": ("weight",),
    "wb": ("weight", "bias"),
    "bn": ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"),
}


class Table(NamedTuple):
    """What a file says."""

    size: int
    scale: float  # of the normalizations' weights
    expected: Any  # scores or features of both images, the first few of them
    tensors: dict[str, tuple[int, ...]]


def read(name: str) -> Table:
    lines = (HERE / f"{name}.txt").read_text().splitlines()
    _, size, _, scale = lines[1].split()
    expected = np.array([[float(n) for n in line.split()[1:]] for line in lines[2:4]])
    tensors: dict[str, tuple[int, ...]] = {}
    for line in lines[4:]:
        module, kind, *numbers = line.split()
        shape = tuple(int(n) for n in numbers)
        if kind == "tensor":
            tensors[module] = shape
            continue
        for ending in KINDS[kind]:
            is_vector = ending != "weight" or kind == "bn"
            tensors[f"{module}.{ending}"] = shape[:1] if is_vector else shape
            if ending == "num_batches_tracked":
                tensors[f"{module}.{ending}"] = ()
    return Table(int(size), float(scale), expected, tensors)


def weights(tensors: dict[str, tuple[int, ...]], scale: float) -> dict[str, Any]:
    """An array for each tensor. These random numbers are the same with every version of NumPy.

    Args:
        tensors: Their shapes.
        scale: Of the weights of normalizations: the table has one with which scores depend on the
            image, and not just on what the last layers add.
    """
    found: dict[str, Any] = {}
    for name, shape in tensors.items():
        rng = np.random.RandomState(zlib.crc32(name.encode()))
        low, high = -0.1, 0.1
        if name.endswith("num_batches_tracked"):
            found[name] = np.array(7, "int64")
            continue
        if name.endswith("running_var"):
            low, high = 0.7, 1.5
        elif name.endswith(("gamma", "layer_scale")) or (len(shape) == 1 and "weight" in name):
            low, high = 0.6 * scale, 1.4 * scale
        elif len(shape) > 1:
            fan_in = int(np.prod(shape[1:]))
            high = (6 / fan_in) ** 0.5 if "token" not in name and "pos" not in name else 0.5
            low = -high
        found[name] = rng.uniform(low, high, shape).astype("float32")
    return found


def images(size: int) -> Any:
    """Two images with pixels from 0 to 255: large patches, whose means differ, under noise."""
    rng = np.random.RandomState(1)
    patches = rng.uniform(0, 200, (2, 4, 4, 3)).repeat(size // 4, 1).repeat(size // 4, 2)
    return (patches + rng.uniform(0, 55, (2, size, size, 3))).astype("float32")

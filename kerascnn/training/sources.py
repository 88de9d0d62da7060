"""Data that users pass: arrays, or a source that gives batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kerascnn.data.dataset import Dataset
from kerascnn.interchange import shares_memory
from kerascnn.tracebacks import warn
from kerascnn.training.data import ArrayData
from kerascnn.training.streams import (
    BatchStream,
    GeneratorStream,
    IterableStream,
    PreparedStream,
    PyDatasetStream,
)
from kerascnn.utils.py_dataset import PyDataset


def as_data(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    class_weight: dict | None = None,
    shuffle: bool | None = False,
    prepare: Callable[[Any], Any] | None = None,
) -> ArrayData | BatchStream:
    """The arguments of `fit` as arrays or as a stream of batches.

    Class weights become a part of streams only: arrays may have to be split before.

    Args:
        x: see `fit`.
        y: see `fit`.
        sample_weight: see `fit`.
        class_weight: see `fit`.
        shuffle: see `fit`.
        prepare: what the model does with inputs on the host first, if there is anything.
    """
    stream = as_stream(x, y, sample_weight, class_weight, shuffle)
    if stream is None:
        return ArrayData(x if prepare is None else prepare(x), y, sample_weight)
    return stream if prepare is None else PreparedStream(stream, prepare)


def unpack_validation_data(
    validation_data: Any, prepare: Callable[[Any], Any] | None = None
) -> ArrayData | BatchStream:
    """`(x, y)`, `(x, y, sample_weight)` or a source of batches.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(validation_data, (ArrayData, BatchStream)):
        return validation_data
    stream = as_stream(validation_data)
    if stream is not None:
        return stream if prepare is None else PreparedStream(stream, prepare)
    if not isinstance(validation_data, (tuple, list)) or len(validation_data) not in (1, 2, 3):
        raise ValueError(
            "validation_data must be a tuple (x, y) or (x, y, sample_weight), or give batches by "
            f"itself. Received: {type(validation_data).__name__}"
            + (f" of {len(validation_data)} items" if hasattr(validation_data, "__len__") else "")
        )
    x, y, sample_weight = (*validation_data, None, None)[:3]
    return as_data(x, y, sample_weight, prepare=prepare)


def as_stream(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    class_weight: dict | None = None,
    shuffle: bool | None = False,
) -> BatchStream | None:
    """The stream for what gives batches by itself, `None` for arrays (and what is neither).

    Raises:
        ValueError: for `y`, `sample_weight` or `class_weight` beside a source that can't have them.
    """
    name = _source_name(x)
    if name is None:
        return None
    for argument, value, what in (
        ("y", y, "the targets"),
        ("sample_weight", sample_weight, "the sample weights"),
    ):
        if value is not None:
            raise ValueError(
                f"`{argument}` can't be passed beside a {name}: {what} must be part of its batches."
            )
    if class_weight is not None and name in ("generator", "torch DataLoader"):
        raise ValueError(
            f"`class_weight` is not supported for a {name}: yield (x, y, sample_weight) with the "
            f"weights of the samples' classes. Received: class_weight={class_weight}"
        )
    if shuffle and name in ("generator", "torch DataLoader"):
        warn(
            f"`shuffle=True` has no effect on a {name}, which has to shuffle by itself. Leave it "
            "out."
        )
    if name == "PyDataset":
        return PyDatasetStream(x, shuffle is None or bool(shuffle), class_weight)
    if name == "generator":
        return GeneratorStream(x)
    return IterableStream(x, name, class_weight)


def _source_name(x: Any) -> str | None:
    if type(x) is np.ndarray:
        return None
    if isinstance(x, PyDataset) or _has_base(x, "PyDataset", "keras."):
        return "PyDataset"
    if _has_base(x, "DataLoader", "torch.utils.data"):
        return "torch DataLoader"
    if x is None or isinstance(x, (str, bytes, list, tuple, dict, np.ndarray, np.generic)):
        return None
    if hasattr(x, "__array__") or shares_memory(x):
        return None
    if hasattr(x, "__next__"):
        return "generator"
    if isinstance(x, Dataset):
        return "Dataset of batches"  # whichever of its classes it has
    return f"{type(x).__name__} of batches" if hasattr(x, "__iter__") else None


def _has_base(x: Any, name: str, package: str) -> bool:
    return any(
        base.__name__ == name and base.__module__.startswith(package) for base in type(x).__mro__
    )

"""The forms of data that `adapt` of layers takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from kerascnn.ops import dispatch


def batches_of(data: Any, steps: int | None = None) -> Iterator[np.ndarray[Any, Any]]:
    """Arrays with a batch each: the array that `data` is, or those that it gives.

    Args:
        data: An array, or an iterable of batches (arrays, or tuples that begin with one).
        steps: How many batches are taken of an iterable.

    Raises:
        TypeError: for anything else.
    """
    if dispatch.is_tensor(data) or dispatch.is_array_like(data):
        yield np.asarray(data)
        return
    source: Iterable[Any]
    if hasattr(data, "__iter__") and not isinstance(data, (str, bytes, dict)):
        source = data
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, dict):
        source = (data[i] for i in range(len(data)))
    else:
        raise TypeError(
            f"Unsupported data type: {type(data)}. `adapt` supports arrays, tensors and iterables "
            "of batches (lists, generators, data sets, PyDatasets, DataLoaders)."
        )
    for batch in itertools.islice(source, steps):
        yield np.asarray(batch[0] if isinstance(batch, tuple) else batch)

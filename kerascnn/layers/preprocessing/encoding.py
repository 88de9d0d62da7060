"""Numbers of categories as rows with a place for each category."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kerascnn import ops


def encode(inputs: Any, mode: str, depth: int, dtype: str, count_weights: Any = None) -> Any:
    """Numbers as rows, on the device.

    Args:
        inputs: Integers; those out of range leave a row as it is.
        mode: "int" (as they are), "one_hot" (a row for each number), "multi_hot" and "count" (a
            row for the numbers along the last axis).
        depth: How many categories there are.
        dtype: Of the result.
        count_weights: What each number counts, with "count".
    """
    if mode == "int":
        return ops.cast(inputs, dtype)
    if len(inputs.shape) == 0:
        inputs = ops.expand_dims(inputs, -1)
    if mode == "one_hot":
        if len(inputs.shape) > 1 and inputs.shape[-1] == 1:
            inputs = ops.squeeze(inputs, -1)
        return ops.one_hot(inputs, depth, dtype=dtype)
    if mode == "multi_hot":
        return ops.multi_hot(inputs, depth, dtype=dtype)
    rows = ops.one_hot(inputs, depth, dtype=dtype)
    if count_weights is not None:
        rows = ops.multiply(rows, ops.expand_dims(count_weights, -1))
    return ops.sum(rows, axis=min(len(inputs.shape) - 1, 1))


def encode_on_host(numbers: Any, mode: str, depth: int, dtype: str) -> np.ndarray[Any, Any]:
    """Does what `encode` does, on the host, for modes other than "int"."""
    numbers = np.asarray(numbers)
    if mode == "one_hot":
        if numbers.ndim > 1 and numbers.shape[-1] == 1:
            numbers = numbers[..., 0]
        numbers = numbers[..., None]
        mode = "multi_hot"
    flat = numbers.reshape(math.prod(numbers.shape[:-1]), numbers.shape[-1])
    rows = np.zeros((len(flat), depth), dtype)
    place, column = np.nonzero((flat >= 0) & (flat < depth))
    if mode == "multi_hot":
        rows[place, flat[place, column]] = 1
    else:
        np.add.at(rows, (place, flat[place, column]), 1)
    return rows.reshape(*numbers.shape[:-1], depth)


def encoded_shape(shape: tuple[int | None, ...], mode: str, depth: int) -> tuple[int | None, ...]:
    """Returns the shape of the result of `encode` for inputs of a shape."""
    if mode == "int":
        return shape
    if mode == "one_hot" and (len(shape) == 1 or shape[-1:] != (1,)):
        return (*shape, depth)
    return (*shape[:-1], depth)

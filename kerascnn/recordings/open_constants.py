"""Constants whose size depends on open axes, described by what they are in all recordings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Same(NamedTuple):
    """One number everywhere."""

    element: Any  # an array without axes


class Counting(NamedTuple):
    """Numbers that grow by `step` along an axis; all other axes have the size 1.

    Attributes:
        axis: The axis.
        starts: The first number, in each recording.
        step: The difference of two numbers.
    """

    axis: int
    starts: list[Any]
    step: Any


class Triangle(NamedTuple):
    """True where a column is at most `offset` behind the row, as in a causal mask.

    Attributes:
        axes: Those of rows and columns; all others have the size 1.
        offset: The number.
    """

    axes: tuple[int, int]
    offset: int


def describe(arrays: Sequence[Any]) -> Same | Counting | Triangle | None:
    """What a constant is, given its value in each recording; None where it is none of these."""
    flat = arrays[0].reshape(-1)
    same = flat[:1]
    if same.size and all((a == same[0]).all() for a in arrays):
        return Same(same.reshape(()))
    axes = [i for i in range(arrays[0].ndim) if any(a.shape[i] != 1 for a in arrays)]
    if len(axes) == 1 and flat.size > 1:
        starts, step = [a.reshape(-1)[0] for a in arrays], flat[1] - flat[0]
        counts = [
            np.arange(a.size).astype(a.dtype) * step + start
            for a, start in zip(arrays, starts, strict=True)
        ]
        if all(np.array_equal(a.reshape(-1), c) for a, c in zip(arrays, counts, strict=True)):
            return Counting(axes[0], starts, step)
    if len(axes) == 2 and flat.dtype == bool:
        pairs = [a.reshape([n for i, n in enumerate(a.shape) if i in axes]) for a in arrays]
        offset = int(pairs[0][0].sum()) - 1
        if all(np.array_equal(a, np.tri(a.shape[0], a.shape[1], offset, bool)) for a in pairs):
            return Triangle((axes[0], axes[1]), offset)
    return None

"""How many elements the steps of data sets give, of how many their sources have."""

from __future__ import annotations

from typing import Any

import numpy as np

INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2


def check_size(name: str, value: Any) -> int:
    """A number from 1 on.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be an integer from 1 on. Received: {name}={value!r}")
    return int(value)


def taken(n: int, count: int) -> int:
    """Of `take(count)`, of a source of `n` elements."""
    if count < 0 or n == UNKNOWN_CARDINALITY:
        return n
    return count if n == INFINITE_CARDINALITY else min(n, count)


def skipped(n: int, count: int) -> int:
    """Of `skip(count)`."""
    if count < 0:
        return 0
    return n if n < 0 else max(n - count, 0)


def repeated(n: int, times: int) -> int:
    """Of `repeat(times)`; without end for negative ones."""
    if times == 0 or n == 0:
        return 0
    if times < 0:
        return INFINITE_CARDINALITY
    return n if n < 0 else n * times


def batched(n: int, size: int, drop_remainder: bool) -> int:
    """Of `batch(size, drop_remainder)`."""
    if n < 0:
        return n
    return n // size if drop_remainder else -(-n // size)


def sharded(n: int, num_shards: int, index: int) -> int:
    """Of `shard(num_shards, index)`."""
    return n if n < 0 else -(-max(n - index, 0) // num_shards)


def zipped(counts: list[int]) -> int:
    """Of several data sets side by side."""
    if UNKNOWN_CARDINALITY in counts:
        return UNKNOWN_CARDINALITY
    return min((n for n in counts if n >= 0), default=INFINITE_CARDINALITY)


def joined(counts: list[int]) -> int:
    """Of several data sets one after the other."""
    for unbounded in (INFINITE_CARDINALITY, UNKNOWN_CARDINALITY):
        if unbounded in counts:
            return unbounded
    return sum(counts)

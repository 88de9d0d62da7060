"""Who owns what, for tests and the processes that they start."""

from __future__ import annotations


def owners_of(count, size):
    """Owners with about as much each, and one process that has nearly everything."""
    return {
        "even": [i % size for i in range(count)],
        "uneven": [size - 1] * (count - 1) + [0],
        "one": [0] * count,
    }

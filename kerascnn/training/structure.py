"""Paths into nested lists, tuples and dictionaries, in addition to `kerascnn.trees`."""

from typing import Any


def is_nested(value: Any) -> bool:
    """Tells whether `value` is a list, tuple or dictionary."""
    return isinstance(value, (list, tuple, dict))


def paths(structure: Any, prefix: tuple = (), sort: bool = True) -> list[tuple]:
    """Yields the path of keys and indices to each leaf, in the order of `trees.flatten`.

    Without `sort` the keys of dictionaries come in the order in which they were written.

    >>> paths({"a": [0, 0]})
    [('a', 0), ('a', 1)]
    """
    if isinstance(structure, dict):
        keys = sorted(structure) if sort else structure
        return [p for key in keys for p in paths(structure[key], (*prefix, key), sort)]
    if isinstance(structure, (list, tuple)):
        return [p for i, item in enumerate(structure) for p in paths(item, (*prefix, i), sort)]
    return [prefix]


def at_path(structure: Any, path: tuple) -> Any:
    """Returns the part of `structure` at `path`; raises what indexing raises if there is none."""
    for key in path:
        structure = structure[key]
    return structure

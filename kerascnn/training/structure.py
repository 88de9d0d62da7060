"""Paths into nested lists, tuples and dictionaries, beside what `kerascnn.trees` offers."""

from typing import Any


def is_nested(value: Any) -> bool:
    """Whether `value` is a list, tuple or dictionary."""
    return isinstance(value, (list, tuple, dict))


def paths(structure: Any, prefix: tuple = ()) -> list[tuple]:
    """The path of keys and indices to each leaf, in the order of `trees.flatten`.

    >>> paths({"a": [0, 0]})
    [('a', 0), ('a', 1)]
    """
    if isinstance(structure, dict):
        return [p for key in sorted(structure) for p in paths(structure[key], (*prefix, key))]
    if isinstance(structure, (list, tuple)):
        return [p for i, item in enumerate(structure) for p in paths(item, (*prefix, i))]
    return [prefix]


def at_path(structure: Any, path: tuple) -> Any:
    """The part of `structure` that `path` leads to; raises as indexing does where there is none."""
    for key in path:
        structure = structure[key]
    return structure

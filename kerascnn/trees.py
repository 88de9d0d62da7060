"""Nested lists, tuples and dictionaries of tensors, as the library walks them.

The public functions, with the names, kinds and errors of `keras.tree`, are in `kerascnn.tree`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def is_nested(value: Any) -> bool:
    """Tells whether `value` is a list, tuple or dictionary."""
    return isinstance(value, (list, tuple, dict))


def leaves(structure: Any) -> Iterator[Any]:
    """The things in a structure, dictionaries in the order of their sorted keys."""
    if isinstance(structure, dict):
        for key in sorted(structure):
            yield from leaves(structure[key])
    elif isinstance(structure, (list, tuple)):
        for item in structure:
            yield from leaves(item)
    else:
        yield structure


def flatten(structure: Any) -> list[Any]:
    """The things in a structure as a list, in the order of `leaves`."""
    return list(leaves(structure))


def map_structure(function: Callable[..., Any], structure: Any, *others: Any) -> Any:
    """The same structure with `function` applied to each thing (and to its like in `others`)."""
    if isinstance(structure, dict):
        return {
            key: map_structure(function, value, *(other[key] for other in others))
            for key, value in structure.items()
        }
    if isinstance(structure, (list, tuple)):
        items = [
            map_structure(function, value, *(other[i] for other in others))
            for i, value in enumerate(structure)
        ]
        if hasattr(structure, "_fields"):
            return type(structure)(*items)
        return type(structure)(items)
    return function(structure, *others)


def sort_keys(structure: Any) -> Any:
    """The same structure with the keys of its outermost dictionaries in order, as Keras has it."""
    if isinstance(structure, dict):
        return {key: structure[key] for key in sorted(structure)}
    if isinstance(structure, (list, tuple)):
        items = [sort_keys(item) for item in structure]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    return structure


def skeleton(structure: Any) -> Any:
    """A structure without its things, to compare with another: lists count as tuples."""
    if isinstance(structure, dict):
        return {key: skeleton(value) for key, value in structure.items()}
    if isinstance(structure, (list, tuple)):
        return tuple(skeleton(item) for item in structure)
    return None


def pack_as(structure: Any, flat: list[Any]) -> Any:
    """A structure like `structure` with the things of `flat` in it, in the order of `leaves`."""
    return _build(structure, iter(flat))


# This is a separate function: an inner function that calls itself would be a reference cycle, and
# keep the tensors until Python's garbage collector runs.
def _build(part: Any, items: Iterator[Any]) -> Any:
    if isinstance(part, dict):
        built = {key: _build(part[key], items) for key in sorted(part)}
        return {key: built[key] for key in part}
    if isinstance(part, (list, tuple)):
        values = [_build(item, items) for item in part]
        return type(part)(*values) if hasattr(part, "_fields") else type(part)(values)
    return next(items)


def paths(structure: Any, prefix: tuple = (), sort: bool = True) -> list[tuple]:
    """Returns the path of keys and indices to each thing, in the order of `flatten`.

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


def map_shapes(function: Callable[[tuple[int | None, ...]], Any], structure: Any) -> Any:
    """As `map_structure` where the things are shapes: tuples or lists of integers and None."""
    if is_shape(structure):
        return function(tuple(structure))
    if isinstance(structure, dict):
        return {key: map_shapes(function, value) for key, value in structure.items()}
    items = [map_shapes(function, value) for value in structure]
    return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)


def flatten_shapes(structure: Any) -> list[tuple[int | None, ...]]:
    """The shapes in a structure of shapes, dictionaries in the order of their sorted keys."""
    if is_shape(structure):
        return [tuple(structure)]
    if isinstance(structure, dict):
        return [shape for key in sorted(structure) for shape in flatten_shapes(structure[key])]
    return [shape for item in structure for shape in flatten_shapes(item)]


def is_shape(structure: Any) -> bool:
    """Tells whether this is one shape rather than a structure of shapes."""
    return isinstance(structure, (list, tuple)) and all(
        item is None or (isinstance(item, int) and not isinstance(item, bool)) for item in structure
    )

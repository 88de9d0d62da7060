"""Masks: which elements of a tensor count, as the tensor's attribute `_keras_mask`.

Layers hand them on beside the tensors. A KerasTensor has its mask as any Python object has an
attribute. Tensors and traced values are objects of the core: a `__dict__` would put each of them
under Python's collector, a field would make each of them larger, and nearly none has a mask. So
theirs lie in a table beside them, found by the object's identity, and leave it with the object; the
making of tensors costs what it did. The table holds a mask as long as what it masks lives, so a
mask must not lead back to that: tensors and values refer to no Python objects, KerasTensors do (by
the calls that they come from), and have no place in the table.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from kerascnn import trees

_entries: dict[int, _Entry] = {}


class _Entry(weakref.ref[Any]):
    """An entry for the mask of an object; it disappears with the object."""

    __slots__ = ("key", "mask")
    key: int
    mask: Any


def _forget(entry: Any) -> None:
    key = entry.key
    if _entries.get(key) is entry:
        del _entries[key]


def _get(x: Any) -> Any:
    """Returns which elements count, or None if all do."""
    entry = _entries.get(id(x))
    return None if entry is None else entry.mask


def _set(x: Any, mask: Any) -> None:
    if mask is None:
        _entries.pop(id(x), None)
    else:
        entry = _Entry(x, _forget)
        entry.key, entry.mask = id(x), mask
        _entries[id(x)] = entry


def _delete(x: Any) -> None:
    if _entries.pop(id(x), None) is None:
        raise AttributeError("this tensor has no `_keras_mask`")


def install(*classes: Any) -> None:
    """Adds the attribute to classes of the core."""
    for cls in classes:
        cls._keras_mask = property(_get, _set, _delete)


def own_mask(x: Any) -> Any:
    """Returns the mask of a tensor, or None for anything else (also for a list)."""
    return getattr(x, "_keras_mask", None)


def mask_of(structure: Any) -> Any:
    """The mask of a tensor, or those of nested tensors in the same nesting; None for no mask."""
    if isinstance(structure, (list, tuple, dict)):
        if type(structure) is list:
            return [mask_of(x) for x in structure]
        return trees.map_structure(mask_of, structure)
    return own_mask(structure)


def set_mask(x: Any, mask: Any) -> None:
    """Says which elements of a tensor count; None takes its mask away.

    Args:
        x: A tensor, a traced value or a KerasTensor.
        mask: A boolean tensor, of the sizes of the first axes of `x` as a rule.
    """
    if mask is not None or mask_of(x) is not None:
        x._keras_mask = mask


def copy_mask(source: Any, target: Any) -> Any:
    """`target`, which stands for `source` from here on, with its mask."""
    if target is not source:
        mask = mask_of(source)
        if mask is not None:
            target._keras_mask = mask
    return target


@contextlib.contextmanager
def taken_off(*tensors: Any) -> Iterator[None]:
    """A block in which tensors have no masks, for a layer that deals with them by itself."""
    own = [mask_of(x) for x in tensors]
    try:
        for x in tensors:
            set_mask(x, None)
        yield
    finally:
        for x, mask in zip(tensors, own, strict=True):
            if mask is not None:
                set_mask(x, mask)


def any_mask(structure: Any) -> bool:
    """Tells whether there is a mask in a result of `mask_of`."""
    if type(structure) is list:
        return any(map(any_mask, structure))
    return structure is not None and any(mask is not None for mask in trees.leaves(structure))

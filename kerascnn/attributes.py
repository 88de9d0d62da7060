"""Finds the objects of one kind among the attributes of another object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

# This is how a search treats the objects of a type. It is stored by type, since there are few types
# and models are searched often.
_NOTHING, _FOUND, _DICT, _SEQUENCE = range(4)
_MAX_TYPES = 1000
_sorts_by_kind: dict[Any, dict[type, int]] = {}


def attributes_of(owner: Any, kind: Any, left_out: Sequence[str] = ()) -> list[Any]:
    """The objects of a kind in an object's attributes, each once, in the order they were set.

    Attributes are searched anew each time, as lists and dictionaries in them change unseen; models
    ask often, so that this must not cost much.
    """
    sorts = _sorts_by_kind.setdefault(kind, {})
    found: dict[int, Any] = {}
    for name, value in owner.__dict__.items():
        sort = sorts.get(type(value))
        if sort == _NOTHING or name in left_out:
            continue
        if sort == _FOUND:
            found[id(value)] = value
        else:
            _gather((value,), kind, sorts, found, set())
    return list(found.values())


def _gather(
    values: Iterable[Any], kind: Any, sorts: dict[type, int], found: dict, around: set[int]
) -> None:
    """Adds values of a kind, and those in lists and dictionaries among the values.

    A list can be in itself, so that those `around` are not searched again.
    """
    for value in values:
        sort = sorts.get(type(value))
        if sort is None:
            sort = _sort_of(value, kind, sorts)
        if sort == _FOUND:
            found[id(value)] = value
        elif sort != _NOTHING and value and id(value) not in around:
            around.add(id(value))
            _gather(value.values() if sort == _DICT else value, kind, sorts, found, around)
            around.discard(id(value))


def _sort_of(value: Any, kind: Any, sorts: dict[type, int]) -> int:
    if isinstance(value, kind):
        sort = _FOUND
    elif isinstance(value, dict):
        sort = _DICT
    else:
        sort = _SEQUENCE if isinstance(value, (list, tuple)) else _NOTHING
    # Weak references and similar objects stand for objects of other types.
    if value.__class__ is type(value):
        if len(sorts) >= _MAX_TYPES:  # a program may create types without end
            sorts.clear()
        sorts[type(value)] = sort
    return sort

"""Nested structures, as `keras.tree` has them: lists, (named) tuples, deques and dictionaries.

Dictionaries count in the order of their sorted keys, an `OrderedDict` in its own; None is a leaf.
The library itself walks structures by `kerascnn.trees`, which knows fewer kinds and takes no time
for errors.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from kerascnn import trees

__all__ = [
    "MAP_TO_NONE",
    "assert_same_paths",
    "assert_same_structure",
    "flatten",
    "flatten_with_path",
    "is_nested",
    "lists_to_tuples",
    "map_shape_structure",
    "map_structure",
    "map_structure_up_to",
    "pack_sequence_as",
    "traverse",
]

Path = tuple[Any, ...]


class MAP_TO_NONE:
    """What a function given to `traverse` returns for None to take a part's place.

    Example:

    >>> import kerascnn as keras
    >>> drop = lambda x: keras.tree.MAP_TO_NONE if x == 2 else None
    >>> keras.tree.traverse(drop, [1, 2, 3])
    [1, None, 3]
    """


def is_nested(structure: Any) -> bool:
    """Tells whether this is a sequence or a dictionary of further things.

    Args:
        structure: Anything. Text is no sequence here.

    Returns:
        True for lists, tuples, deques and dictionaries, also of subclasses.

    Example:

    >>> import kerascnn as keras
    >>> keras.tree.is_nested([1]), keras.tree.is_nested("ab")
    (True, False)
    """
    return isinstance(structure, (list, tuple, deque, dict))


def _keys(structure: Any) -> list[Any]:
    """Returns the keys of a structure's parts, in their order."""
    if isinstance(structure, OrderedDict):
        return list(structure)
    if isinstance(structure, dict):
        return sorted(structure)
    return list(range(len(structure)))


def _like(structure: Any, parts: list[Any]) -> Any:
    """Makes a structure of the same kind with other parts, given in the order of `_keys`."""
    if isinstance(structure, dict):
        named = dict(zip(_keys(structure), parts, strict=True))
        # keeps the order of the original for printing
        items = [(key, named[key]) for key in structure]
        if isinstance(structure, defaultdict):
            return defaultdict(structure.default_factory, items)
        return type(structure)(items)
    if hasattr(structure, "_fields"):
        return type(structure)(*parts)
    if isinstance(structure, deque):
        return deque(parts, structure.maxlen)
    return type(structure)(parts)


def traverse(func: Callable[[Any], Any], structure: Any, top_down: bool = True) -> Any:
    """Calls a function for each part of a structure and for the whole, and puts in what it returns.

    Args:
        func: Takes a part. Where it returns None the part stays: top-down, it is then looked into.
            `MAP_TO_NONE` puts in None.
        structure: What to walk through.
        top_down: Whether a part comes before what is in it.

    Returns:
        The structure with what was put in.

    Raises:
        TypeError: for what cannot be called.

    Example:

    >>> import kerascnn as keras
    >>> keras.tree.traverse(lambda x: x + 1 if isinstance(x, int) else None, [1, (2, 3)])
    [2, (3, 4)]
    """
    _check_callable(func)

    def replaced(part: Any, otherwise: Callable[[], Any]) -> Any:
        result = func(part)
        if result is None:
            return otherwise()
        return None if result is MAP_TO_NONE or isinstance(result, MAP_TO_NONE) else result

    def inner(part: Any) -> Any:
        if not is_nested(part):
            return part
        return _like(part, [walk(part[key]) for key in _keys(part)])

    def walk(part: Any) -> Any:
        if top_down:
            return replaced(part, lambda: inner(part))
        rebuilt = inner(part)
        return replaced(rebuilt, lambda: rebuilt)

    return walk(structure)


def flatten_with_path(structure: Any) -> list[tuple[Path, Any]]:
    """The things in a structure with their places: tuples of indices and keys.

    Args:
        structure: Things in lists, tuples and dictionaries, or a single one.

    Returns:
        A list of (place, thing); dictionaries go by their sorted keys, an OrderedDict by its order.

    Example:

    >>> import kerascnn as keras
    >>> keras.tree.flatten_with_path({"b": [4, 5], "a": 3})
    [(('a',), 3), (('b', 0), 4), (('b', 1), 5)]
    """
    if not is_nested(structure):
        return [((), structure)]
    return [
        ((key, *path), leaf)
        for key in _keys(structure)
        for path, leaf in flatten_with_path(structure[key])
    ]


def flatten(structure: Any) -> list[Any]:
    """The things in a structure as a list.

    Args:
        structure: Things in lists, tuples and dictionaries, or a single one.

    Returns:
        A list; dictionaries go by their sorted keys, an OrderedDict by its order.

    Example:

    >>> import kerascnn as keras
    >>> keras.tree.flatten({"b": [4, (5,)], "a": None})
    [None, 4, 5]
    """
    return [leaf for _, leaf in flatten_with_path(structure)]


def map_structure(func: Callable[..., Any], *structures: Any, none_is_leaf: bool = True) -> Any:
    """A structure like the first one, of the function's results for things in the same places.

    Args:
        func: Takes one thing of each structure.
        *structures: Structures of the same form.
        none_is_leaf: Whether the function is called for None too; else None stays, and
            must be in the same places of all structures.

    Returns:
        A structure of the same form.

    Raises:
        TypeError: without structures, or for what cannot be called.
        ValueError: for structures of different forms.

    Example:

    >>> import kerascnn as keras
    >>> keras.tree.map_structure(lambda a, b: a + b, {"x": [1, 2]}, {"x": [10, 20]})
    {'x': [11, 22]}
    """
    _check_callable(func)
    _check_given(structures)
    for other in structures[1:]:
        assert_same_structure(structures[0], other)

    def of_leaves(*leaves: Any) -> Any:
        if none_is_leaf or all(leaf is not None for leaf in leaves):
            return func(*leaves)
        if any(leaf is not None for leaf in leaves):
            raise ValueError(_different(leaves[0], next(x for x in leaves if x is not leaves[0])))
        return None

    return map_structure_up_to(structures[0], of_leaves, *structures)


def map_structure_up_to(shallow_structure: Any, func: Callable[..., Any], *structures: Any) -> Any:
    """As `map_structure`, down to where the first structure ends; what lies below stays whole.

    Args:
        shallow_structure: Says how far the function is to go.
        func: Takes what each structure has at a place of the first one.
        *structures: Structures that have at least the places of the first one.

    Returns:
        A structure like the first one, of the function's results.

    Raises:
        TypeError: without structures, or for what cannot be called.
        ValueError: where a structure differs from the first one.

    Example:

    >>> import kerascnn as keras
    >>> keras.tree.map_structure_up_to([None, None], len, [(1, 2), (3,)])
    [2, 1]
    """
    _check_callable(func)
    _check_given(structures)
    if not is_nested(shallow_structure):
        return func(*structures)
    for other in structures:
        if not _is_same_node(shallow_structure, other):
            raise ValueError(_different(shallow_structure, other))
    parts = [
        map_structure_up_to(shallow_structure[key], func, *(other[key] for other in structures))
        for key in _keys(shallow_structure)
    ]
    return _like(shallow_structure, parts)


def assert_same_structure(a: Any, b: Any, check_types: bool | None = None) -> None:
    """Raises an error unless both are nested in the same way, in sequences of the same types.

    All dictionaries with the same keys count as the same type.

    Args:
        a: A structure.
        b: A structure.
        check_types: Has no effect and is not to be used any more.

    Raises:
        ValueError: where they differ, with the place.

    Example:

    >>> import kerascnn as keras
    >>> keras.tree.assert_same_structure([1, {"a": 2}], [3, {"a": 4}])
    """
    if check_types is not None:
        warnings.warn(
            "`check_types` has no effect any more. `keras.tree.assert_same_paths` takes sequences "
            "of all types for the same.",
            DeprecationWarning,
            stacklevel=2,
        )
    _assert_same(a, b, ())


def _assert_same(a: Any, b: Any, path: Path) -> None:
    if not is_nested(a) and not is_nested(b):
        return
    if not _is_same_node(a, b):
        raise ValueError(_different(a, b, path))
    for key in _keys(a):
        _assert_same(a[key], b[key], (*path, key))


def _is_same_node(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys()
    return type(a) is type(b) and len(a) == len(b)


def _different(a: Any, b: Any, path: Path = ()) -> str:
    place = "".join(f"[{key!r}]" for key in path)
    return (
        "The two structures don't have the same nested structure"
        f"{' at ' + place if place else ''}. First: {a!r}; second: {b!r}"
    )


def assert_same_paths(a: Any, b: Any) -> None:
    """Raises an error unless the things of both are in the same places, whatever holds them.

    Args:
        a: A structure.
        b: A structure.

    Raises:
        ValueError: where they differ, with the places that only one of them has.

    Example:

    >>> import kerascnn as keras
    >>> keras.tree.assert_same_paths([1, 2], (3, 4))
    """
    paths_a = {path for path, _ in flatten_with_path(a)}
    paths_b = {path for path, _ in flatten_with_path(b)}
    if paths_a != paths_b:
        raise ValueError(
            "The two structures don't have the same paths. Only in the first: "
            f"{sorted(paths_a - paths_b, key=repr)}; only in the second: "
            f"{sorted(paths_b - paths_a, key=repr)}"
        )


def pack_sequence_as(structure: Any, flat_sequence: Iterable[Any]) -> Any:
    """A structure like the given one, of the things of a list in the order of `flatten`.

    Args:
        structure: A structure, whose own things don't matter.
        flat_sequence: The things.

    Returns:
        A structure of the same form.

    Raises:
        TypeError: for a list that is none.
        ValueError: for more or fewer things than the structure has places.

    Example:

    >>> import kerascnn as keras
    >>> keras.tree.pack_sequence_as({"b": [0, 0], "a": 0}, [1, 2, 3])
    {'b': [2, 3], 'a': 1}
    """
    if isinstance(flat_sequence, (str, bytes)) or not isinstance(flat_sequence, Iterable):
        raise TypeError(f"Attempted to pack what is no sequence: {flat_sequence!r}")
    items = list(flat_sequence)
    places = len(flatten(structure))
    if places != len(items):
        raise ValueError(
            f"Could not pack the sequence: the structure has {places} places, the sequence "
            f"{len(items)} things. Structure: {structure!r}, sequence: {items!r}"
        )
    rest = iter(items)
    return map_structure_up_to(structure, lambda _: next(rest), structure)


def lists_to_tuples(structure: Any) -> Any:
    """The same structure with tuples in place of lists.

    Args:
        structure: Things in lists, tuples and dictionaries, or a single one.

    Returns:
        A structure of the same things.

    Example:

    >>> import kerascnn as keras
    >>> keras.tree.lists_to_tuples([1, {"a": [2]}])
    (1, {'a': (2,)})
    """
    return traverse(lambda x: tuple(x) if type(x) is list else None, structure, top_down=False)


def map_shape_structure(func: Callable[[Any], Any], structure: Any) -> Any:
    """As `map_structure` where the things are shapes: tuples or lists of integers and None.

    Args:
        func: Takes a shape.
        structure: Shapes in lists, tuples and dictionaries, or a single one.

    Returns:
        A structure of the function's results.

    Raises:
        TypeError: for what cannot be called.

    Example:

    >>> import kerascnn as keras
    >>> keras.tree.map_shape_structure(len, {"x": (None, 3), "y": (2, 4, 4)})
    {'x': 2, 'y': 3}
    """
    _check_callable(func)
    return traverse(lambda x: _or_none(func(x)) if trees.is_shape(x) else None, structure)


def _or_none(result: Any) -> Any:
    return MAP_TO_NONE if result is None else result


def _check_callable(func: Any) -> None:
    if not callable(func):
        raise TypeError(f"`func` must be callable. Received: func={func!r}")


def _check_given(structures: tuple[Any, ...]) -> None:
    if not structures:
        raise TypeError("`structures` is empty: give at least one.")

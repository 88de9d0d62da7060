"""keras.tree on random structures is compared with Keras' own."""

import importlib
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

import kerascnn
from kerascnn import tree

from .comparing import keras

# On the PyTorch backend Keras has another implementation, which sorts only some dictionaries.
REFERENCE = importlib.import_module(f"{keras.__name__}.src.tree.optree_impl")
Point = namedtuple("Point", "x y")


def random_structure(rng, depth=0):
    kind = rng.integers(0, 9 if depth < 4 else 2)
    if kind < 2:
        return None if rng.random() < 0.1 else int(rng.integers(100))
    size = int(rng.integers(0, 4))
    parts = [random_structure(rng, depth + 1) for _ in range(size)]
    names = [str(name) for name in rng.permutation(list("abcdefg"))[:size]]
    pairs = list(zip(names, parts, strict=True))
    if kind == 7:
        return Point(random_structure(rng, depth + 1), random_structure(rng, depth + 1))
    return {
        2: lambda: parts,
        3: lambda: tuple(parts),
        4: lambda: dict(pairs),
        5: lambda: OrderedDict(pairs),
        6: lambda: deque(parts),
        8: lambda: tuple(parts[:1]),
    }[int(kind)]()


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except (ValueError, TypeError) as error:
        return type(error)


def same(here, there):
    """Checks equality; the order of keys counts only in `OrderedDict`."""
    assert here == there
    assert [*map(repr, tree.flatten(here))] == [*map(repr, tree.flatten(there))]


def changed(structure, rng):
    """Returns another structure, which is often similar."""
    if rng.random() < 0.3:
        return random_structure(rng)
    return tree.map_structure(lambda x: [x] if rng.random() < 0.05 else 7, structure)


CALLS = {
    "is_nested": lambda t, a, b: t.is_nested(a),
    "flatten": lambda t, a, b: t.flatten(a),
    "flatten_with_path": lambda t, a, b: t.flatten_with_path(a),
    "lists_to_tuples": lambda t, a, b: t.lists_to_tuples(a),
    "pack_sequence_as": lambda t, a, b: t.pack_sequence_as(a, list(range(len(t.flatten(a))))),
    "assert_same_structure": lambda t, a, b: t.assert_same_structure(a, b),
    "assert_same_paths": lambda t, a, b: t.assert_same_paths(a, b),
    "map_structure": lambda t, a, b: t.map_structure(lambda *x: x, a, b),
    "map_structure without None": lambda t, a, b: t.map_structure(
        lambda *x: x, a, b, none_is_leaf=False
    ),
    "map_structure_up_to": lambda t, a, b: t.map_structure_up_to(
        t.map_structure(lambda _: 0, a), lambda x: ("mapped", x), b
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_against_keras(call, rng):
    nested = 0
    for _ in range(200):
        a = random_structure(rng)
        b = changed(a, rng)
        nested += tree.is_nested(a)
        same(outcome(call, tree, a, b), outcome(call, REFERENCE, a, b))
    assert nested > 50


@pytest.mark.parametrize("top_down", [True, False])
def test_traverse_against_keras(top_down, rng):
    def order(module, structure):
        seen = []

        def visit(part):
            seen.append(repr(part))
            if part == 3:
                return tree.MAP_TO_NONE if module is tree else keras.tree.MAP_TO_NONE
            return "pair" if isinstance(part, tuple) and len(part) == 2 else None

        return module.traverse(visit, structure, top_down), seen

    for _ in range(200):
        structure = random_structure(rng)
        same(order(tree, structure), order(REFERENCE, structure))


def test_dictionaries_with_defaults_count_sorted():
    structure = defaultdict(list, {"b": 1, "a": 2})
    assert tree.flatten(structure) == [2, 1]
    packed = tree.pack_sequence_as(structure, [5, 6])
    assert packed == {"a": 5, "b": 6} and packed["c"] == []


def test_shapes():
    structure = {"a": (None, 3), "b": [(2, 3), [(4,), ()]]}
    assert kerascnn.tree.map_shape_structure(lambda s: [*s, 1], structure) == {
        "a": [None, 3, 1],
        "b": [[2, 3, 1], [[4, 1], [1]]],
    }


@pytest.mark.parametrize(
    ("call", "error", "part"),
    [
        (lambda: tree.map_structure(len), TypeError, "`structures` is empty"),
        (lambda: tree.map_structure(1, [2]), TypeError, "`func` must be callable"),
        (lambda: tree.traverse(None, [2]), TypeError, "`func` must be callable"),
        (lambda: tree.assert_same_structure({"a": [1]}, {"a": (1,)}), ValueError, "at ['a']"),
        (lambda: tree.assert_same_paths({"a": 1}, {"b": 1}), ValueError, "('a',)"),
        (lambda: tree.pack_sequence_as([0], "a"), TypeError, "no sequence"),
        (lambda: tree.pack_sequence_as([0, 0], [1]), ValueError, "2 places"),
    ],
)
def test_errors_say_what_is_wrong(call, error, part):
    with pytest.raises(error) as caught:
        call()
    assert part in str(caught.value)


def test_check_types_warns():
    with pytest.warns(DeprecationWarning, match="no effect"):
        tree.assert_same_structure([1], [2], check_types=True)

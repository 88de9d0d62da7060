"""Matches what `compile` and `fit` were given with the outputs of a model."""

from __future__ import annotations

import contextlib
from typing import Any

from kerascnn import trees
from kerascnn.trees import at_path, is_nested, paths


def output_names_of(y_pred: Any, names: list[str] | None) -> list[str | None]:
    """Returns a name for each output: dictionary keys, the model's names, or else `None`."""
    if isinstance(y_pred, dict) and all(not is_nested(value) for value in y_pred.values()):
        return sorted(y_pred)
    count = len(trees.flatten(y_pred))
    return list(names) if names and len(names) == count else [None] * count


def per_output(value: Any, y_pred: Any, names: list, what: str, any_name: bool = True) -> list:
    """`value` (one for all, or a list or dictionary of them) as a list with one for each output.

    With `any_name` a dictionary for one output may have another key than its name.

    Raises:
        ValueError: where a list has the wrong length or a dictionary has unknown keys.
    """
    outputs = paths(y_pred)
    if any(len(path) > 1 for path in outputs) and is_nested(value):
        # For outputs in lists inside dictionaries and the like, the same nesting is expected.
        try:
            return [at_path(value, path) for path in outputs]
        except (KeyError, IndexError, TypeError):
            raise ValueError(
                f"`{what}` must be nested like the model's outputs, with one entry for each: "
                f"{trees.map_structure(lambda _: '*', y_pred)}. Received: {value}"
            ) from None
    if isinstance(value, dict):
        unknown = [key for key in value if key not in names]
        is_clear = len(outputs) == 1 and len(value) == 1 and (any_name or names == [None])
        if unknown and not is_clear:
            raise ValueError(
                f"The keys of `{what}` must be names of outputs. The model has "
                f"{', '.join(map(repr, names))}. Received: {', '.join(map(repr, value))}"
            )
        return list(value.values()) if unknown else [value.get(name) for name in names]
    if isinstance(value, (list, tuple)):
        if len(value) != len(outputs):
            raise ValueError(
                f"`{what}` must have one entry for each of the {len(outputs)} outputs. Received "
                f"{len(value)}: {value}"
            )
        return list(value)
    return [value] * len(outputs)


def match_targets(y: Any, y_pred: Any, names: list, wanted: list[bool]) -> list:
    """The target of each output, `None` where none is `wanted`.

    Raises:
        ValueError: where `y` doesn't have the outputs' structure.
    """
    outputs = paths(y_pred)
    if any(len(path) > 1 for path in outputs) and is_nested(y):
        with contextlib.suppress(KeyError, IndexError, TypeError):
            return [
                at_path(y, path) if want else None
                for path, want in zip(outputs, wanted, strict=True)
            ]
    if isinstance(y, dict) and all(
        name in y for name, want in zip(names, wanted, strict=True) if want
    ):
        return [y[name] if want else None for name, want in zip(names, wanted, strict=True)]
    leaves = trees.flatten(y)
    named = isinstance(y, dict) and isinstance(y_pred, dict)
    if not named and len(leaves) == len(outputs):
        return [leaf if want else None for leaf, want in zip(leaves, wanted, strict=True)]
    if not named and len(leaves) == sum(wanted):
        rest = iter(leaves)
        return [next(rest) if want else None for want in wanted]
    raise ValueError(
        "The targets don't match the model's outputs. The model has "
        f"{_describe(y_pred, names)}; y has {_describe(y, [])}."
    )


def by_output(value: Any, y_pred: Any, names: list, what: str) -> list[tuple[tuple, Any]]:
    """Returns what is given for outputs and for groups of them, each with the path that it is for.

    As in Keras a list of as many things as there are outputs has one for each, in whatever way
    the outputs are nested. Anything else is nested as the outputs are, where a list that is none
    of the model's has several things for one place: `[a, (b, c)]` beside a tuple of two outputs is
    `a` for the tuple, `b` for its first and `c` for its second part.

    The order is that of dictionaries as they were written, in which Keras' `evaluate` lists losses.

    Raises:
        ValueError: see `per_output`; where a key or a place is none of the model's.
    """
    if not is_nested(value):
        return [(path, value) for path in paths(y_pred, sort=False)]
    if isinstance(value, dict) and not isinstance(y_pred, dict):
        any_name = what != "loss"  # a loss for another output would be a mistake
        given = per_output(value, y_pred, names, what, any_name)
        return [
            found
            for path, item in zip(paths(y_pred), given, strict=True)
            for found in _below(item, at_path(y_pred, path), path, what)
        ]
    return _below(value, y_pred, (), what, names)


def _below(
    value: Any, y_pred: Any, path: tuple, what: str, names: list | None = None
) -> list[tuple[tuple, Any]]:
    if not is_nested(value):
        return [(path, value)]
    if isinstance(value, (list, tuple)):
        outputs = paths(y_pred, path)
        if len(value) == len(outputs) and not any(is_nested(item) for item in value):
            return list(zip(outputs, value, strict=True))
        if not isinstance(y_pred, type(value)) and (path or any(map(is_nested, value))):
            return [found for item in value for found in _below(item, y_pred, path, what)]
    parts = _parts(value)
    known = _parts(y_pred) if is_nested(y_pred) else {}
    same_kind = isinstance(value, dict) == isinstance(y_pred, dict)
    too_few = not isinstance(value, dict) and len(parts) < len(known)
    unknown = [key for key in parts if key not in known]
    if not same_kind or unknown or too_few:
        if not path and names is not None and all(len(p) <= 1 for p in paths(y_pred)):
            per_output(value, y_pred, names, what, False)  # raises an error with the outputs' names
        where = "".join(f"[{key!r}]" for key in path)
        raise ValueError(
            f"`{what}` must be nested like the model's outputs, with one entry for each: "
            f"{trees.map_structure(lambda _: '*', y_pred)}{f' at {where}' if where else ''}. "
            f"Received: {value}"
        )
    return [found for key in parts for found in _below(parts[key], y_pred[key], (*path, key), what)]


def _parts(structure: Any) -> dict:
    return structure if isinstance(structure, dict) else dict(enumerate(structure))


def part_of(flat: list, y_pred: Any, path: tuple) -> Any:
    """Returns the part for the outputs at `path`, nested like them, of a list with one for each."""
    here = at_path(y_pred, path)
    found = [item for p, item in zip(paths(y_pred), flat, strict=True) if p[: len(path)] == path]
    return trees.pack_as(here, found)


def name_in_logs(path: tuple, y_pred: Any, names: list, default: str) -> str:
    """Returns the log name of a loss: that of its output, with the path of nested outputs."""
    here = at_path(y_pred, path)
    own = [n for p, n in zip(paths(y_pred), names, strict=True) if p[: len(path)] == path]
    if is_nested(here):
        keys = list(here) if isinstance(here, dict) else [name or default for name in own]
        return "/".join(map(str, path)) or "_".join(map(str, keys))
    last = path[-1] if path and isinstance(path[-1], str) else own[0] or default
    return "/".join(str(part) for part in (*path[:-1], last))


def _describe(structure: Any, names: list) -> str:
    if isinstance(structure, dict):
        return f"the keys {', '.join(map(repr, sorted(structure)))}"
    count = len(trees.flatten(structure))
    known = [repr(name) for name in names if name]
    return f"{count} array{'s' if count != 1 else ''}" + (f" ({', '.join(known)})" if known else "")

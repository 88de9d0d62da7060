"""What a model is recorded on: its own inputs, or those that `export` was told."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from kerascnn import trees
from kerascnn.layers.preprocessing.host_layer import HostLayer
from kerascnn.recordings.recording import ExportError, Input, Program, unique


def check_built(model: Any) -> None:
    """Raises ValueError for a model without weights."""
    if not model.built:
        raise ValueError(
            f"Model '{model.name}' has no weights yet. Call it on data (or build(input_shape)) "
            "before exporting."
        )


def signature(model: Any, given: Any) -> Any:
    """The structure of `Input`s that a model is recorded on.

    Args:
        model: The model.
        given: None for the model's own; or what `export` was given.
    """
    own = _own_signature(model)
    if given is not None:
        if isinstance(given, (list, tuple)) and len(given) == 1 and not trees.is_nested(own):
            given = given[0]
        if own is not None and len(trees.flatten(given)) != len(trees.flatten(own)):
            raise ValueError(
                f"`input_signature` must have something with `shape` for each of the "
                f"{len(trees.flatten(own))} inputs of '{model.name}'. Received: {given!r}"
            )
        known = trees.flatten(own) if own is not None else [None] * len(trees.flatten(given))
        found = [
            _input_of(x, k, i)
            for i, (x, k) in enumerate(zip(trees.flatten(given), known, strict=True))
        ]
        return trees.pack_as(given if own is None else own, _named(found))
    if own is None:
        raise ValueError(
            f"The inputs of '{model.name}', which is a {type(model).__name__}, are not known. Say "
            "what they are: model.export(path, ..., input_signature="
            "[keras.InputSpec(shape=(None, 28, 28, 1))])."
        )
    return trees.pack_as(own, _named(trees.flatten(own)))


def check_on_device(model: Any, inputs: list[Input]) -> None:
    """Raises ExportError where something of the model runs on the host, or takes text."""
    host = [x for x in model._flatten_layers() if isinstance(x, HostLayer)]
    text = [x.name for x in inputs if x.dtype == "string"]
    if host or text:
        what = (
            f"layer '{host[0].name}' ({type(host[0]).__name__})" if host else f"input '{text[0]}'"
        )
        raise ExportError(
            f"Model '{model.name}' can't be exported: {what} works on the host, on text or tables. "
            "Export a model that begins behind it, and prepare its inputs with the layer."
        )


def check_stateless(model: Any, program: Program) -> None:
    """Raises ExportError where a prediction assigns to variables: a file has no state to keep."""
    names = [variable.name for variable in program.assigned()]
    if names:
        raise ExportError(
            f"Model '{model.name}' can't be exported: a prediction changes "
            f"{', '.join(names[:5])}. A graph in a file computes the same in each call: leave out "
            "`stateful`, assign to a variable only where `training` is true, and draw random "
            "numbers with a whole number as their seed."
        )


def _named(inputs: list[Input]) -> list[Input]:
    names = unique([x.name for x in inputs])
    return [dataclasses.replace(x, name=name) for x, name in zip(inputs, names, strict=True)]


def _own_signature(model: Any) -> Any:
    with contextlib.suppress(AttributeError, ValueError):
        names = model.input_names if hasattr(model, "input_names") else [None]
        flat = [
            Input(name or x.name, tuple(x.shape), str(x.dtype))
            for name, x in zip(names, model.inputs, strict=True)
        ]
        return trees.pack_as(model.input, flat)
    shapes = model._build_shapes
    if shapes and len(shapes) == 1 and next(iter(shapes.values())) is not None:

        def of_shape(shape: Any) -> Input:
            return Input("input", (None, *shape[1:]), model.compute_dtype)

        return trees.map_shapes(of_shape, next(iter(shapes.values())))
    return None


def _input_of(x: Any, known: Input | None, place: int) -> Input:
    shape = getattr(x, "shape", None)
    if shape is None:
        raise ValueError(
            "`input_signature` takes keras.InputSpec(shape=...), tensors and arrays. Received: "
            f"{x!r}"
        )
    default = known.dtype if known is not None else "float32"
    name = getattr(x, "name", None) or (known.name if known is not None else f"input_{place}")
    sizes = tuple(None if n is None else int(n) for n in shape)
    return Input(str(name), sizes, str(getattr(x, "dtype", None) or default))

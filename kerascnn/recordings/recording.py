"""A model's forward pass as one list of calls of ops, with sizes that depend on open axes.

Whatever a layer's `call` does, it is recorded as calls of the core's ops, as for `predict`. So one
emitter for each op of the core serves all layers: the library's, and those of users.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerascnn import _core, tracing, trees
from kerascnn.device import device as on_device
from kerascnn.recordings.sizes import (
    BATCHES,
    LENGTHS,
    Axes,
    Shape,
    Size,
    UnknownSize,
    merged,
)


class ExportError(ValueError):
    """A model that cannot be exported; the message names layer, op and a way out."""


class Call(NamedTuple):
    """A call of an op. Numbers among the attributes are `Extent`s, bodies `Program`s."""

    op: str
    attributes: dict[str, Any]
    inputs: list[int]
    outputs: list[int]
    layer: str


@dataclasses.dataclass(frozen=True)
class Input:
    """An input of the model; None in the shape is an open axis."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str


class Program:
    """A graph, recorded at every point of the open axes.

    Attributes:
        calls: Calls in order, without those that nothing needs.
        outputs: The numbers of the values that it gives.
        inputs: Of the values that it is given; -1 for one that is not read.
        captured: Of a body, the number of a value outside by that of the value that stands for it.
    """

    def __init__(self, axes: Axes, graphs: list[Any], inputs: list[int], outputs: list[int]):
        self.axes, self._graphs = axes, graphs
        self.inputs, self.outputs = inputs, outputs
        self.captured = {inner.id: outer for outer, inner in graphs[0].captured}
        self._states = {inner.id: outer for _, outer, inner, _ in graphs[0].bound_states}
        self.captured.update(self._states)
        lists = [graph.nodes for graph in graphs]
        if any(
            [n[:1] + n[2:4] for n in nodes] != [n[:1] + n[2:4] for n in lists[0]]
            for nodes in lists[1:]
        ):
            raise UnknownSize("what is computed depends on the open sizes")
        self.calls = self._needed([self._call(nodes) for nodes in zip(*lists, strict=True)])
        self.users: dict[int, int] = {}
        for value in [v for call in self.calls for v in call.inputs] + outputs:
            value = self.resolve(value)
            self.users[value] = self.users.get(value, 0) + 1
        self.producers = {v: call for call in self.calls for v in call.outputs}

    def _call(self, nodes: Sequence[Any]) -> Call:
        op, attributes, inputs, outputs, layer = nodes[0]
        merge = {name: self._attribute([node[1][name] for node in nodes]) for name in attributes}
        return Call(op, merge, [self.resolve(v) for v in inputs], outputs, layer)

    def _attribute(self, values: list[Any]) -> Any:
        first = values[0]
        if isinstance(first, list) and first and isinstance(first[0], _core.Body):
            return [self._body(bodies) for bodies in zip(*values, strict=True)]
        if isinstance(first, list):
            return [self._attribute(list(each)) for each in zip(*values, strict=True)]
        if isinstance(first, int) and not isinstance(first, bool):
            return merged(self.axes, values)
        if any(value != first for value in values):
            raise UnknownSize(f"an attribute depends on the open sizes: {values}")
        return first

    def _body(self, bodies: Sequence[Any]) -> Program:
        graphs = [body.graph for body in bodies]
        return Program(self.axes, graphs, list(bodies[0].inputs), list(bodies[0].outputs))

    def _needed(self, calls: list[Call]) -> list[Call]:
        needed = {self.resolve(v) for v in self.outputs}
        kept = []
        for call in reversed(calls):
            if needed.intersection(call.outputs):
                kept.append(call)
                needed.update(call.inputs)
        return kept[::-1]

    def assigned(self) -> list[Any]:
        """The variables that a call of the model would change."""
        graph = self._graphs[0]
        return [v for v in graph.states if graph.origin(graph.read(v)) != ("state", v)]

    def resolve(self, value: int) -> int:
        """The value that a reading of a variable is equal to; else the value itself."""
        same = self._graphs[0].alias(self._graphs[0].value(value))
        return value if same is None else same

    def shape(self, value: int) -> Shape:
        shapes = [graph.value(value).shape for graph in self._graphs]
        return tuple(merged(self.axes, sizes) for sizes in zip(*shapes, strict=True))

    def dtype(self, value: int) -> str:
        return self._graphs[0].value(value).dtype

    def origin(self, value: int) -> tuple[str, Any]:
        """What a value is: an input, a result, a variable or, for each recording, a constant."""
        kind, first = self._graphs[0].origin(self._graphs[0].value(value))
        if value in self._states or kind == "input":
            return "input", None
        if kind == "constant":
            return kind, [graph.origin(graph.value(value))[1] for graph in self._graphs]
        return ("variable", first) if kind == "state" else ("result", None)


class Recording(NamedTuple):
    """What `record` makes of a model."""

    program: Program
    axes: Axes
    inputs: list[tuple[Input, tuple[str | int, ...]]]  # with names of the open axes
    output_names: list[str]


def record(model: Any, inputs: Any) -> Recording:
    """Records a model's call.

    Args:
        model: A built model.
        inputs: The structure of `Input`s that it is called on.

    Raises:
        ExportError: where the call can't be recorded for open sizes.
    """
    flat: list[Input] = trees.flatten(inputs)
    first: Exception | None = None
    for tied in (False, True):
        shapes = _named_axes(flat, tied)
        names = list(dict.fromkeys(n for shape in shapes for n in shape if isinstance(n, str)))
        if len(names) > 4:
            continue
        for lengths in LENGTHS if any(n != "batch" for n in names) else LENGTHS[:1]:
            choices = [BATCHES if n == "batch" else _apart(lengths, i) for i, n in enumerate(names)]
            axes = Axes(names, choices)
            try:
                program, outputs = _record(model, inputs, shapes, axes)
            except (ValueError, TypeError) as error:
                first = first or error
                continue
            return Recording(program, axes, list(zip(flat, shapes, strict=True)), outputs)
    raise ExportError(
        f"Model '{model.name}' could not be recorded with the axes of its inputs that are left "
        f"open ({_open(flat)}): {first or 'there are too many of them'}. Give sizes: "
        "model.export(path, ..., input_signature=[keras.InputSpec(shape=(1, ...))])."
    ) from first


def _apart(lengths: tuple[int, int, int], place: int) -> tuple[int, int, int]:
    """Sizes that are others for each axis."""
    a, b, test = lengths
    return (a, b, test + 2 * place) if place < 2 else (b, a, test + 2 * place)


def _open(inputs: list[Input]) -> str:
    return ", ".join(f"{x.name} {x.shape}" for x in inputs if None in x.shape) or "none"


def _named_axes(inputs: list[Input], tied: bool) -> list[tuple[str | int, ...]]:
    """Shapes with names for open axes; `tied` gives the same axis of all inputs one size."""
    shapes = []
    for x in inputs:
        shape: list[str | int] = []
        for axis, n in enumerate(x.shape):
            open_name = f"axis_{axis}" if tied else f"{x.name}_axis_{axis}"
            shape.append(n if n is not None else "batch" if axis == 0 else open_name)
        shapes.append(tuple(shape))
    return shapes


def _record(
    model: Any, inputs: Any, shapes: list[tuple[str | int, ...]], axes: Axes
) -> tuple[Program, list[str]]:
    flat: list[Input] = trees.flatten(inputs)
    graphs, known = [], []
    for sizes in axes:
        with on_device("cpu"), tracing.Trace("cpu") as trace:
            values = [
                trace.graph.input(
                    x.name, [sizes[n] if isinstance(n, str) else n for n in s], x.dtype
                )
                for x, s in zip(flat, shapes, strict=True)
            ]
            results = model(trees.pack_as(inputs, values), training=False)
            leaves = [_as_value(model, trace, leaf) for leaf in trees.flatten(results)]
        model._clear_losses()
        graphs.append(trace.graph)
        known.append([leaf.id for leaf in leaves])
    if any(ids != known[0] for ids in known[1:]):
        raise UnknownSize("what is computed depends on the open sizes")
    names = _output_names(model, results, len(leaves))
    return Program(axes, graphs, [v.id for v in values], known[0]), names


def _as_value(model: Any, trace: Any, leaf: Any) -> Any:
    if isinstance(leaf, _core.Value):
        return leaf
    if isinstance(leaf, _core.Tensor):
        return trace.graph.constant(leaf)
    try:
        with tracing.resumed(trace):
            return trace.graph.constant(_core.from_numpy(np.asarray(leaf), "cpu"))
    except (TypeError, ValueError) as error:
        raise ExportError(
            f"Model '{model.name}' returns {type(leaf).__name__}, which is no tensor of numbers."
        ) from error


def _output_names(model: Any, results: Any, count: int) -> list[str]:
    given = getattr(model, "output_names", None)
    if isinstance(results, dict) and len(results) == count:
        given = [str(key) for key in results]
    if not given or len(given) != count:
        given = [f"output_{i}" for i in range(count)]
    return unique(given)


def unique(names: Sequence[str]) -> list[str]:
    """The same names, with a number behind those that were there before."""
    taken: set[str] = set()
    return [fresh(name, taken.__contains__, taken.add) for name in names]


def fresh(name: str, taken: Callable[[str], bool], take: Callable[[str], None]) -> str:
    """A name that is not taken, which is taken then."""
    found, number = name, 1
    while taken(found):
        found = f"{name}_{number}"
        number += 1
    take(found)
    return found


__all__ = ["Call", "ExportError", "Input", "Program", "Recording", "Size", "record", "unique"]

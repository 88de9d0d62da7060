"""What a model computes as JSON in its safetensors file, for the C++ library.

The graph is that of `kerascnn.recordings`: calls of the core's ops, with sizes that may depend on
open axes. `core/inference/graph_file.h` reads it, and docs/cpp.md describes the format.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from kerascnn import trees
from kerascnn.models import weights_file
from kerascnn.recordings import open_constants
from kerascnn.recordings.recording import Call, ExportError, Program, Recording, record
from kerascnn.recordings.signatures import check_on_device, check_stateless, signature
from kerascnn.recordings.sizes import Extent, Shape, Size, UnknownSize, merged

VERSION = 1
_RANGES = ("int32", "int64", "float32", "float64")
# Constants of one number take no bytes for each element from this size on.
_WRITTEN = 1024

_REFUSED = {
    "custom_op": "its source is compiled where it runs, and a file runs no code.",
    "all_reduce": "it sums over processes.",
}


def write(model: Any, input_signature: Any) -> tuple[str, dict[str, Any]]:
    """The graph of a built model as JSON, and the arrays that it needs beside the weights.

    Args:
        model: The model.
        input_signature: As for `Model.export`.

    Raises:
        ExportError: for what a graph without state can't express, naming layer and op.
    """
    inputs = signature(model, input_signature)
    check_on_device(model, trees.flatten(inputs))
    recording = record(model, inputs)
    check_stateless(model, recording.program)
    named = {id(v.core): name for name, v, _ in weights_file.named_variables(model)}
    writer = _Writer(recording, named)
    text = json.dumps(writer.model(), separators=(",", ":"), allow_nan=False)
    return text, writer.arrays


class _Writer:
    """Writes a recording.

    Args:
        recording: The recording.
        named: The names of weights in the file, by the `id` of their variables of the core.

    Attributes:
        arrays: By name, what is written beside the weights.
    """

    def __init__(self, recording: Recording, named: dict[int, str]) -> None:
        self.arrays: dict[str, Any] = {}
        self._recording, self._named = recording, named
        self._numbers = {name: i for i, name in enumerate(recording.axes.names)}
        self._known: dict[Any, str] = {}

    def model(self) -> dict[str, Any]:
        """All of the graph, with the names of inputs and outputs."""
        recording, program = self._recording, self._recording.program
        examples = next(iter(recording.axes))
        inputs = [
            {"name": x.name, **self._spec(x.dtype, program.shape(v))}
            for (x, _), v in zip(recording.inputs, program.inputs, strict=True)
        ]
        outputs = [
            {"name": name, **self._spec_of(program, v)}
            for name, v in zip(recording.output_names, program.outputs, strict=True)
        ]
        return {
            "version": VERSION,
            "axes": [{"name": n, "example": examples[n]} for n in recording.axes.names],
            "inputs": inputs,
            "outputs": outputs,
            "graph": self._graph(program),
        }

    def _graph(self, program: Program) -> dict[str, Any]:
        numbers = {v: i for i, v in enumerate(program.inputs) if v >= 0}
        values: list[dict[str, Any]] = []
        computed = set(program.producers)
        read = [(v, call) for call in program.calls for v in call.inputs]
        for value, call in [*read, *((program.resolve(v), None) for v in program.outputs)]:
            if value not in numbers and value not in computed:
                numbers[value] = len(program.inputs) + len(values)
                values.append(_naming(call, lambda v=value: self._source(program, v)))
        count = len(program.inputs) + len(values)
        nodes = []
        for call in program.calls:
            nodes.append(_naming(call, lambda c=call: self._node(c, numbers)))
            for value in call.outputs:
                numbers[value] = count
                count += 1
        outputs = [numbers[program.resolve(v)] for v in program.outputs]
        return {"values": values, "nodes": nodes, "outputs": outputs}

    def _node(self, call: Call, numbers: dict[int, int]) -> dict[str, Any]:
        if call.op in _REFUSED:
            raise UnknownSize(_REFUSED[call.op])
        node: dict[str, Any] = {
            "op": call.op,
            "inputs": [numbers[v] for v in call.inputs],
            "outputs": len(call.outputs),
        }
        if call.attributes:
            node["attributes"] = {n: self._attribute(v) for n, v in call.attributes.items()}
        if call.layer:
            node["layer"] = call.layer
        return node

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, list):
            if value and isinstance(value[0], Program):
                return {"bodies": [self._body(body) for body in value]}
            return [self._attribute(each) for each in value]
        if isinstance(value, float) and not math.isfinite(value):
            return {"number": repr(value)}
        return self._extent(value) if isinstance(value, Size) else value

    def _body(self, program: Program) -> dict[str, Any]:
        inputs = [self._spec_of(program, v) if v >= 0 else None for v in program.inputs]
        return {"inputs": inputs, **self._graph(program)}

    # Sizes ----------------------------------------------------------------------------------------

    def _extent(self, extent: Extent) -> Any:
        if not isinstance(extent, Size):
            return extent
        terms = extent.polynomial().items()
        return {"size": [[factor, *(self._numbers[n] for n in names)] for names, factor in terms]}

    def _spec(self, dtype: str, shape: Shape) -> dict[str, Any]:
        return {"dtype": dtype, "shape": [self._extent(n) for n in shape]}

    def _spec_of(self, program: Program, value: int) -> dict[str, Any]:
        return self._spec(program.dtype(value), program.shape(value))

    # Values that no call computes -----------------------------------------------------------------

    def _source(self, program: Program, value: int) -> dict[str, Any]:
        kind, source = program.origin(value)
        if kind == "variable":
            name = self._named.get(id(source))
            if name is None:  # an attribute of a layer that is none of its weights
                name = self._named[id(source)] = f"{weights_file.GRAPH}variables/{len(self.arrays)}"
                self.arrays[name] = source.value.to("cpu").numpy()
            return {"weight": name}
        if kind != "constant":
            raise AssertionError(f"value {value} comes from nowhere")
        arrays = [tensor.to("cpu").numpy() for tensor in source]
        is_open = any(isinstance(n, Size) for n in program.shape(value))
        if not is_open and not all(_equal(arrays[0], a) for a in arrays[1:]):
            raise UnknownSize(
                "it takes a constant whose values depend on the size of an open axis. Give this "
                "axis a size with `input_signature`."
            )
        if not is_open and (arrays[0].size <= _WRITTEN or any(arrays[0].strides)):
            return {"constant": self._constant(arrays[0])}
        return self._open_constant(arrays, self._spec_of(program, value))

    def _open_constant(self, arrays: list[Any], spec: dict[str, Any]) -> dict[str, Any]:
        found = open_constants.describe(arrays)
        if isinstance(found, open_constants.Same):
            return {"full": {**spec, "constant": self._constant(found.element)}}
        if isinstance(found, open_constants.Counting) and spec["dtype"] in _RANGES:
            starts = [n.item() for n in found.starts]
            start = starts[0]
            if any(n != start for n in starts):
                start = self._extent(merged(self._recording.axes, [int(n) for n in starts]))
            return {"range": {**spec, "start": start, "step": found.step.item()}}
        if isinstance(found, open_constants.Triangle):
            return {"triangle": {**spec, "axes": list(found.axes), "offset": found.offset}}
        raise UnknownSize(
            "it takes a constant whose values depend on the size of an open axis. Give this axis "
            "a size with `input_signature`, or compute the constant by functions of keras.ops."
        )

    def _constant(self, array: Any) -> str:
        """The name of a constant in the file; equal ones are one."""
        array = np.ascontiguousarray(array).reshape(array.shape)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._known:
            name = self._known[key] = f"{weights_file.GRAPH}constants/{len(self.arrays)}"
            self.arrays[name] = array
        return self._known[key]


def _equal(a: Any, b: Any) -> bool:
    return a.shape == b.shape and np.ascontiguousarray(a).tobytes() == b.tobytes()


def _naming(call: Call | None, function: Any) -> Any:
    """What a function returns; an error of it names the call."""
    try:
        return function()
    except UnknownSize as error:
        what = "An output of the model"
        if call is not None:
            layer = f"layer '{call.layer}'" if call.layer else "the model"
            what = f"The op '{call.op}' of {layer}"
        raise ExportError(f"{what} can't be exported: {error}") from error


__all__ = ["VERSION", "write"]

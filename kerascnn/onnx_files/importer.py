"""What readers of ONNX's ops work on: constants, values in two layouts, names.

It is the counterpart of the emitter: a value is a KerasTensor with the axes of ONNX, with channels
last, or both, and is transposed where it is wanted in a layout in which it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kerascnn import ops
from kerascnn.onnx_files import tensors
from kerascnn.onnx_files.emitter import first_axes, last_axes
from kerascnn.recordings import recording

# Constants that are computed while a file is read have together at most this many elements, and a
# few times as many as the file has bytes for.
MOST_ELEMENTS = 1 << 21


class ImportedError(ValueError):
    """An ONNX file that can't become a model; the message names node, op and a way out."""


class Open:
    """A size that is not known before the model runs: that of an open axis."""

    def __repr__(self) -> str:
        return "open"


OPEN = Open()


class Value:
    """A value that the model computes.

    Attributes:
        plain: A KerasTensor with the axes in ONNX's order, or None.
        last: The same with the second axis behind the others, or None.
        zero: Whether it is 0 everywhere, whatever its size.
        rows: A KerasTensor (batch, ..., columns), where the value is all of its rows, (n, columns).
    """

    def __init__(
        self, plain: Any = None, last: Any = None, zero: bool = False, rows: Any = None
    ) -> None:
        if plain is not None and len(plain.shape) < 3:
            last = plain
        elif last is not None and len(last.shape) < 3:
            plain = last
        self._plain, self._last, self.zero, self.rows = plain, last, zero, rows

    @property
    def shape(self) -> tuple[int | None, ...]:
        """With the axes in ONNX's order."""
        if self.rows is not None:
            return (None, self.rows.shape[-1])
        if self._plain is not None:
            return tuple(self._plain.shape)
        return tuple(self._last.shape[i] for i in first_axes(len(self._last.shape)))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> str:
        known = (self._plain, self._last, self.rows)
        return next(str(x.dtype) for x in known if x is not None)

    @property
    def only_last(self) -> bool:
        return self._plain is None and self.rows is None

    @property
    def plain(self) -> Any:
        if self._plain is None and self.rows is not None:
            self._plain = ops.reshape(self.rows, (-1, self.rows.shape[-1]))
        elif self._plain is None:
            self._plain = ops.transpose(self._last, first_axes(len(self._last.shape)))
        return self._plain

    @property
    def last(self) -> Any:
        if self._last is None and self.rows is not None:
            self._last = self.plain
        elif self._last is None:
            self._last = ops.transpose(self._plain, last_axes(len(self._plain.shape)))
        return self._last


class Node:
    """A node that is read: its attributes and operands.

    Attributes:
        op: The op's name.
        opset: The version of ONNX's ops.
        inputs: Names; "" for one that is left out.
        outputs: Names.
    """

    def __init__(self, proto: Any, importer: Importer) -> None:
        self.op, self.opset = str(proto.op_type), importer.opset
        self.inputs, self.outputs = list(proto.input), list(proto.output)
        self.importer = importer
        self.label = (
            f"node '{proto.name[:200]}'" if proto.name else f"the node for {self.outputs[:1]}"
        )
        self.name = str(proto.name) or self.op
        self._attributes = {a.name: a for a in proto.attribute}

    def error(self, reason: str) -> ImportedError:
        return ImportedError(f"{self.op} ({self.label}) can't be read: {reason}")

    # Attributes

    def _get(self, name: str, kind: int, default: Any, read: Callable[[Any], Any]) -> Any:
        found = self._attributes.get(name)
        if found is None:
            return default
        if found.type != kind:
            raise self.error(f"its attribute '{name}' is of type {found.type}, not {kind}.")
        return read(found)

    def whole(self, name: str, default: Any = None) -> Any:
        return self._get(name, 2, default, lambda a: int(a.i))

    def real(self, name: str, default: Any = None) -> Any:
        return self._get(name, 1, default, lambda a: float(a.f))

    def text(self, name: str, default: str = "") -> str:
        return self._get(name, 3, default, lambda a: a.s.decode("utf-8", "replace"))

    def ints(self, name: str, default: Any = None) -> Any:
        return self._get(name, 7, default, lambda a: [int(i) for i in a.ints])

    def texts(self, name: str) -> list[str]:
        return self._get(name, 8, [], lambda a: [s.decode("utf-8", "replace") for s in a.strings])

    def tensor(self, name: str) -> Any:
        return self._get(name, 4, None, lambda a: tensors.to_array(a.t, None))

    def has(self, name: str) -> bool:
        return name in self._attributes

    def only(self, **allowed: Any) -> None:
        """Refuses attributes with other values than these."""
        for name, value in allowed.items():
            if name in self._attributes:
                kind = {int: self.whole, float: self.real, str: self.text}[type(value)]
                if kind(name) != value:
                    raise self.error(f"{name}={kind(name)!r} is not known, only {value!r}.")

    # Operands

    def has_input(self, place: int) -> bool:
        return place < len(self.inputs) and self.inputs[place] != ""

    def input(self, place: int) -> Any:
        """A `Value`, or an array of a constant; an array of objects where sizes are open."""
        if not self.has_input(place):
            raise self.error(f"its input {place} is missing.")
        return self.importer.get(self.inputs[place], self)

    def value(self, place: int) -> Value:
        """The operand as what the model computes, also where it is a constant."""
        found = self.input(place)
        return found if isinstance(found, Value) else self.importer.computed(self, found)

    def constant(self, place: int) -> Any:
        """The operand as an array.

        Raises:
            ImportedError: where the model computes it.
        """
        found = self.input(place)
        if isinstance(found, Value):
            raise self.error(f"its input '{self.inputs[place][:200]}' must be a constant.")
        return found

    def numbers(self, place: int) -> list[Any]:
        """A constant list of whole numbers, `OPEN` among them where a size is."""
        array = self.constant(place)
        if array.size > 4096 or array.dtype.kind not in "iuO":
            raise self.error(f"its input {place} is no list of sizes.")
        return [n if n is OPEN else int(n) for n in array.reshape(-1)]

    def known_numbers(self, place: int) -> list[int]:
        """The same without open sizes."""
        numbers = self.numbers(place)
        if any(n is OPEN for n in numbers):
            raise self.error(f"its input {place} depends on the size of an open axis.")
        return numbers

    def axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise self.error(f"axis {axis} is none of {rank}.")
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> list[int]:
        found = [self.axis(axis, rank) for axis in axes]
        if len(set(found)) != len(found):
            raise self.error(f"its axes {list(axes)[:40]} name one twice.")
        return found


class Importer:
    """Reads a graph.

    Args:
        graph: A GraphProto.
        opset: The version of ONNX's ops.
        folder: Where external data may be.
        size: The bytes of the file.

    Attributes:
        room: How many elements of computed constants there may still be.
        values: What is known, by name: `Value`s and arrays.
        inputs: The KerasTensors of the model's inputs.
        weights: For each layer with weights, what they are set to.
    """

    def __init__(self, graph: Any, opset: int, folder: Path, size: int) -> None:
        self.opset = opset
        self.room = MOST_ELEMENTS + size // 2
        self.values: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.weights: list[tuple[Any, list[Any]]] = []
        self.users: dict[str, int] = {}
        self._folder = folder
        self._initializers = {t.name: t for t in graph.initializer}
        self._names: set[str] = set()
        for node in graph.node:
            for name in node.input:
                self.users[name] = self.users.get(name, 0) + 1
        for output in graph.output:
            self.users[output.name] = self.users.get(output.name, 0) + 1

    def get(self, name: str, node: Node) -> Any:
        """A value by its name; a tensor of the file is made an array where it is asked for."""
        if name not in self.values:
            if name not in self._initializers:
                raise node.error(f"its input '{name[:200]}' is nowhere computed before it.")
            self.values[name] = tensors.to_array(self._initializers[name], self._folder)
        return self.values[name]

    def is_weight(self, name: str) -> bool:
        """Tells whether it is a tensor of the file, and not computed from such."""
        return name in self._initializers

    def free(self, name: str) -> None:
        """Lets go of the array of a tensor that only one node reads."""
        if name in self._initializers and self.users.get(name, 0) <= 1:
            self.values.pop(name, None)

    def computed(self, node: Node, array: Any) -> Value:
        """A constant as a value; the model has it as a constant."""
        if array.dtype == object:
            raise node.error("it takes the size of an open axis as a tensor.")
        return Value(plain=ops.convert_to_tensor(array))

    def nothing(self, node: Node, rank: int, dtype: str) -> Any:
        """Zeros (batch, 1, ...) with as many samples as the first input with an open batch has."""
        for value in self.inputs:
            if value.shape[:1] == (None,):
                first = value[(slice(None), *[slice(0, 1)] * (len(value.shape) - 1))]
                flat = ops.zeros_like(ops.cast(ops.reshape(first, (-1,)), dtype))
                return ops.reshape(flat, (-1, *[1] * (rank - 1)))
        raise node.error("no input has an open batch, whose size it takes.")

    def name(self, wanted: str) -> str:
        """A name for a layer that no other one has."""
        clean = re.sub(r"[^A-Za-z0-9_.-]+", "_", wanted).strip("_.")[:100] or "node"
        return recording.fresh(clean, self._names.__contains__, self._names.add)

    def add(self, node: Node, layer: Any, x: Any, weights: Sequence[Any] = ()) -> Any:
        """Calls a layer, and notes what its weights are."""
        result = layer(x)
        if weights:
            shapes = [tuple(w.shape) for w in layer.weights]
            given = [np.shape(w) for w in weights]
            if shapes != given:
                raise node.error(f"its weights have the shapes {given}, where {shapes} fit.")
            self.weights.append((layer, list(weights)))
        return result

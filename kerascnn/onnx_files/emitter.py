"""What emitters of ops write to: nodes, constants, sizes, and the two layouts of a value.

The core has channels last, ONNX has them first. A value is known in one layout or in both, each
under a name. Convolution and pooling take and give channels first; what works on single elements,
or along axes that can be renamed, follows the layout that its inputs have. So a transpose is
written only where a value is wanted in a layout in which it is not known, and once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerascnn import _core
from kerascnn.ops import dispatch
from kerascnn.recordings import open_constants, recording
from kerascnn.recordings.recording import Call, ExportError, Program
from kerascnn.recordings.sizes import Extent, Shape, Size, UnknownSize, at, merged

PLAIN, FIRST = "channels last", "channels first"  # the layout of the core, and that of ONNX

# Constants are computed where the file does not grow by it.
_ALWAYS_FOLDED = 1 << 16
_TYPES = {"bfloat16": "float32"}
_ONNX_TYPES = {
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "float16": "FLOAT16",
    "int8": "INT8",
    "uint8": "UINT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "bool": "BOOL",
}

EmitterFunction = Callable[["Emitter", Call], None]
EMITTERS: dict[str, EmitterFunction] = {}
# Ops for which there is no emitter on purpose, and what to do.
REFUSED: dict[str, str] = {}


def emits(*ops: str) -> Callable[[EmitterFunction], EmitterFunction]:
    """Registers the emitter of these ops."""

    def register(function: EmitterFunction) -> EmitterFunction:
        for op in ops:
            EMITTERS[op] = function
        return function

    return register


def dtype_here(dtype: str) -> str:
    """The dtype in the file: runtimes know next to no op of bfloat16, which becomes float32."""
    return _TYPES.get(dtype, dtype)


def first_axes(rank: int) -> list[int]:
    """The permutation that brings the last axis behind the first one."""
    return [0, rank - 1, *range(1, rank - 1)]


def last_axes(rank: int) -> list[int]:
    """The permutation that undoes `first_axes`."""
    return [0, *range(2, rank), 1]


class File:
    """Nodes and constants of the file that is made; the graphs in it share names and constants."""

    def __init__(self) -> None:
        import onnx

        self.onnx = onnx
        self.initializers: list[Any] = []
        self.sizes: list[Any] = []  # nodes that compute sizes, before all others
        self._names: set[str] = set()
        self._known: dict[Any, str] = {}

    def name(self, wanted: str) -> str:
        """A name that nothing has yet."""
        return recording.fresh(wanted or "value", self._names.__contains__, self._names.add)

    def constant(self, array: Any, wanted: str = "constant") -> str:
        """The name of a constant; equal small ones are one."""
        array = np.ascontiguousarray(np.asarray(array)).reshape(np.shape(array))
        if array.dtype.name == "bfloat16":
            array = array.astype("float32")
        key = (array.dtype.name, array.shape, array.tobytes()) if array.nbytes <= 64 else None
        if key in self._known:
            return self._known[key]
        name = self.name(wanted)
        self.initializers.append(self.onnx.numpy_helper.from_array(array, name))
        if key is not None:
            self._known[key] = name
        return name

    def element_type(self, dtype: str) -> int:
        return getattr(self.onnx.TensorProto, _ONNX_TYPES[dtype_here(dtype)])

    def size_node(self, key: Any, op: str, inputs: list[str], **attributes: Any) -> str:
        """A node among those that compute sizes; one for each key."""
        if key not in self._known:
            name = self._known[key] = self.name("size")
            node = self.onnx.helper.make_node(op, inputs, [name], name=name, **attributes)
            self.sizes.append(node)
        return self._known[key]


class Emitter:
    """Writes the calls of one graph.

    Args:
        file: The file.
        program: The calls.
        places: Of each open axis: an input's name in the file, and the axis.
    """

    def __init__(self, file: File, program: Program, places: dict[str, tuple[str, int]]) -> None:
        self.file, self.program, self.places = file, program, places
        self.nodes: list[Any] = []
        self._forms: dict[int, dict[str, str]] = {}
        self._arrays: dict[int, Any] = {}
        self._given: dict[Any, str] = {}
        self._derived: dict[Size, str] = {}
        self._call: Call | None = None

    # Calls ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Writes all calls."""
        for call in self.program.calls:
            self._call = call
            if self._fold(call):
                continue
            emitter = EMITTERS.get(call.op)
            if emitter is None:
                raise self.error(REFUSED.get(call.op, "ONNX has nothing that computes it."))
            try:
                emitter(self, call)
            except UnknownSize as error:
                raise self.error(
                    f"{error}. Give this axis a size: model.export(path, format='onnx', "
                    "input_signature=[keras.InputSpec(shape=(1, ...))])."
                ) from error
        self._call = None

    def error(self, reason: str) -> ExportError:
        """The error for the call that is being written."""
        if self._call is None:
            return ExportError(f"An output of the model can't be exported: {reason}")
        layer = f"layer '{self._call.layer}'" if self._call.layer else "the model"
        return ExportError(f"The op '{self._call.op}' of {layer} can't be exported: {reason}")

    def inner(self, program: Program) -> Emitter:
        """The emitter for a body of the call that is being written."""
        return Emitter(self.file, program, self.places)

    def _fold(self, call: Call) -> bool:
        """Computes a call of constants now, where that makes the file no larger."""
        arrays = [self.array(v) for v in call.inputs]
        if any(a is None for a in arrays) or call.op in REFUSED or call.op in ("loop", "switch"):
            return False
        specs = [self.program.shape(v) for v in call.outputs]
        numbers = [n for shape in specs for n in shape]
        for value in call.attributes.values():
            numbers += value if isinstance(value, list) else [value]
        if any(isinstance(n, Size) for n in numbers):
            return False
        attributes = dict(call.attributes)
        if attributes.get("dtype") in _TYPES:
            attributes["dtype"] = dtype_here(attributes["dtype"])
        used = [i for i, v in enumerate(call.outputs) if v in self.program.users]
        size = sum(math.prod(at(n, 0) for n in specs[i]) for i in used)
        if size > max(_ALWAYS_FOLDED, 2 * sum(a.size for a in arrays)):
            return False
        tensors = [_core.from_numpy(np.ascontiguousarray(a), "cpu") for a in arrays]
        results = dispatch.run(call.op, tensors, attributes)
        for i in used:
            self._arrays[call.outputs[i]] = results[i].numpy()
        return True

    # Values ---------------------------------------------------------------------------------------

    def shape(self, value: int) -> Shape:
        return self.program.shape(value)

    def rank(self, value: int) -> int:
        return len(self.program.shape(value))

    def dtype(self, value: int) -> str:
        return dtype_here(self.program.dtype(value))

    def array(self, value: int) -> Any:
        """The value as an array where it is a constant of this size, else None."""
        if value not in self._arrays:
            self._arrays[value] = self._find_array(value)
        return self._arrays[value]

    def _find_array(self, value: int) -> Any:
        kind, source = self.program.origin(value)
        if kind == "variable":
            return _host(source.value)
        if kind != "constant":
            return None
        if any(isinstance(n, Size) for n in self.shape(value)):
            return None
        arrays = [_host(tensor) for tensor in source]
        if any(not np.array_equal(a, arrays[0], equal_nan=a.dtype.kind == "f") for a in arrays[1:]):
            return None
        return arrays[0]

    def take_array(self, value: int, array: Any) -> None:
        """Notes that a value that is given from around is a constant."""
        self._arrays[value] = array

    def forms(self, value: int) -> dict[str, str]:
        """The names of a value by layout, as far as there are any yet."""
        return self._forms.setdefault(value, {})

    def put(self, value: int, name: str, layout: str = PLAIN) -> None:
        """Notes under which name a value is known in a layout."""
        self.forms(value)[layout] = name

    def plain(self, value: int) -> str:
        """The name of a value in the core's layout."""
        forms = self.forms(value)
        if PLAIN not in forms:
            if FIRST in forms:
                forms[PLAIN] = self._moved(value, forms[FIRST], last_axes)
            else:
                forms[PLAIN] = self._made(value)
        return forms[PLAIN]

    def first(self, value: int, rank: int | None = None) -> str:
        """The name of a value with channels first; it broadcasts to `rank` axes."""
        own = self.rank(value)
        rank = own if rank is None else rank
        array = self.array(value)
        if array is not None:
            return self._first_constant(value, array, rank)
        if own == 0:
            return self.plain(value)
        if own < rank:
            key = (value, rank)
            if key not in self._given:
                axes = self.ints(range(rank - own))
                wide = self.node("Unsqueeze", [self.plain(value), axes])
                self._given[key] = self.node("Transpose", [wide], perm=first_axes(rank))
            return self._given[key]
        forms = self.forms(value)
        if FIRST not in forms:
            forms[FIRST] = self._moved(value, self.plain(value), first_axes)
        return forms[FIRST]

    def _moved(self, value: int, name: str, axes: Callable[[int], list[int]]) -> str:
        rank = self.rank(value)
        if self.lies_alike(value):
            shape = self.shape(value)
            return self.reshaped(
                name, tuple(shape[i] for i in axes(rank)) if axes is first_axes else shape
            )
        return self.node("Transpose", [name], perm=axes(rank))

    def lies_alike(self, value: int) -> bool:
        """Tells whether both layouts have the elements in the same order."""
        shape = self.shape(value)
        return len(shape) < 3 or shape[-1] == 1 or all(n == 1 for n in shape[1:-1])

    def _first_constant(self, value: int, array: Any, rank: int) -> str:
        if array.ndim == 0:
            return self.plain(value)
        wide = array.reshape((1,) * (rank - array.ndim) + array.shape)
        return self.constant_as(value, wide.transpose(first_axes(rank)), f"{FIRST}, {rank} axes")

    def constant_as(self, value: int, array: Any, form: str) -> str:
        """The name of a constant in another form; it is written once for each form."""
        key = (value, form)
        if key not in self._given:
            self._given[key] = self.file.constant(array, self._constant_name(value))
        return self._given[key]

    def _constant_name(self, value: int) -> str:
        kind, source = self.program.origin(value)
        return source.name if kind == "variable" else "constant"

    def _made(self, value: int) -> str:
        """Writes a constant, also one whose size depends on open axes."""
        array = self.array(value)
        if array is not None:
            return self._written(array, self._constant_name(value))
        kind, source = self.program.origin(value)
        if kind != "constant":
            raise AssertionError(f"value {value} was not written")
        return self._open_constant(value, [_host(tensor) for tensor in source])

    def _written(self, array: Any, wanted: str) -> str:
        if array.size > 1024 and not any(array.strides):
            scalar = self.file.constant(array.reshape(-1)[0], wanted)
            return self.node("Expand", [scalar, self.ints(array.shape)])
        return self.file.constant(array, wanted)

    def _open_constant(self, value: int, arrays: list[Any]) -> str:
        """A constant that is the same number everywhere, or counts along one axis."""
        shape, found = self.shape(value), open_constants.describe(arrays)
        if isinstance(found, open_constants.Same):
            scalar = self.file.constant(found.element, "constant")
            return self.node("Expand", [scalar, self.extents(shape)])
        if isinstance(found, open_constants.Counting):
            return self._counting(value, shape, found.axis, found.starts, found.step)
        if isinstance(found, open_constants.Triangle):
            return self._triangle(shape, list(found.axes), found.offset)
        raise self.error(
            "it takes a constant whose values depend on the size of an open axis. Give this axis "
            "a size with `input_signature`, or compute the constant by functions of keras.ops."
        )

    def _counting(self, value: int, shape: Shape, axis: int, starts: list[Any], step: Any) -> str:
        """Numbers that grow by `step` along an axis."""
        kind = self.file.element_type(self.dtype(value))
        line = self.node("Cast", [self._line(shape[axis])], to=kind)
        line = self.node("Mul", [line, self.file.constant(step)])
        if all(start == starts[0] for start in starts):
            start = self.file.constant(starts[0])
        else:
            first = merged(self.program.axes, [int(n) for n in starts])
            start = self.node("Cast", [self.scalar(first)], to=kind)
        return self.reshaped(self.node("Add", [line, start]), shape)

    def _line(self, extent: Extent) -> str:
        """0, 1, 2, ... as int64."""
        ends = [self.file.constant(np.int64(n)) for n in (0, 1)]
        return self.node("Range", [ends[0], self.scalar(extent), ends[1]])

    def _triangle(self, shape: Shape, axes: list[int], offset: int) -> str:
        """True where a column is at most `offset` behind the row, as in a causal mask."""
        rows = self.node("Unsqueeze", [self._line(shape[axes[0]]), self.ints([1])])
        rows = self.node("Add", [rows, self.file.constant(np.int64(offset))])
        return self.reshaped(self.node("GreaterOrEqual", [rows, self._line(shape[axes[1]])]), shape)

    # Nodes ----------------------------------------------------------------------------------------

    def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Writes a node with one output, and returns its name."""
        return self.node_with(op, inputs, 1, **attributes)[0]

    def node_with(
        self, op: str, inputs: Sequence[str], outputs: int, **attributes: Any
    ) -> list[str]:
        """Writes a node, and returns the names of its outputs."""
        layer = self._call.layer + "/" if self._call is not None and self._call.layer else ""
        name = self.file.name(f"{layer}{op.lower()}")
        names = [name, *(self.file.name(f"{name}_{i}") for i in range(1, outputs))]
        self.nodes.append(
            self.file.onnx.helper.make_node(op, list(inputs), names, name=name, **attributes)
        )
        return names

    def ints(self, numbers: Any) -> str:
        """The name of a constant list of int64."""
        return self.file.constant(np.array(list(numbers), "int64"), "sizes")

    def number(self, value: float, dtype: str) -> str:
        """The name of a constant without axes."""
        return self.file.constant(np.array(value, dtype_here(dtype)))

    def scalar(self, extent: Extent) -> str:
        """The name of a size as int64 without axes."""
        if not isinstance(extent, Size):
            return self.file.constant(np.int64(extent))
        try:
            terms = extent.polynomial()
        except UnknownSize as error:
            return self._derived_size(extent, error)
        total = None
        for term, factor in terms.items():
            product = None if factor == 1 and term else self.file.constant(np.int64(factor))
            for axis in term:
                product = self._joined("Mul", product, self._axis_size(axis))
            total = self._joined("Add", total, product)  # type: ignore[arg-type]
        assert total is not None
        return total

    def _derived_size(self, extent: Size, error: UnknownSize) -> str:
        """A size by that of a value which is computed before, as `factor * size + rest`."""
        if extent in self._derived:
            return self._derived[extent]
        for value, forms in self._forms.items():
            for axis, size in enumerate(self.shape(value)):
                line = _line_through(size, extent)
                if line is None or not forms:
                    continue
                layout, name = next(iter(forms.items()))
                place = first_axes(self.rank(value)).index(axis) if layout is FIRST else axis
                found = self.node("Gather", [self.node("Shape", [name]), self.ints([place])])
                if line != (1, 0):
                    found = self.node("Mul", [found, self.ints([line[0]])])
                    found = self.node("Add", [found, self.ints([line[1]])])
                self._derived[extent] = self.node("Squeeze", [found, self.ints([0])])
                return self._derived[extent]
        raise error

    def _axis_size(self, axis: str) -> str:
        source, place = self.places[axis]
        shape = self.file.size_node(("shape", source), "Shape", [source])
        index = self.file.constant(np.int64(place))
        return self.file.size_node(("axis", axis), "Gather", [shape, index])

    def _joined(self, op: str, a: str | None, b: str) -> str:
        return b if a is None else self.file.size_node((op, a, b), op, [a, b])

    def extents(self, shape: Shape) -> str:
        """The name of a list of sizes."""
        if not any(isinstance(n, Size) for n in shape):
            return self.ints(shape)
        zero = self.ints([0])
        parts, derived = [], False
        for n in shape:
            if isinstance(n, Size):
                one = self.scalar(n)
                if n in self._derived:
                    derived = True
                    parts.append(self.node("Unsqueeze", [one, zero]))
                else:
                    parts.append(self.file.size_node(("list", one), "Unsqueeze", [one, zero]))
            else:
                parts.append(self.ints([n]))
        if derived:
            return self.node("Concat", parts, axis=0)
        return self.file.size_node(("list", *parts), "Concat", parts, axis=0)

    def reshaped(self, name: str, shape: Shape) -> str:
        """Reshapes to a shape of which one size may be left to the runtime."""
        unknown = [i for i, n in enumerate(shape) if isinstance(n, Size)]
        if len(unknown) == 1 and 0 not in shape:
            target = self.ints(-1 if isinstance(n, Size) else n for n in shape)
        else:
            target = self.extents(shape)
        return self.node("Reshape", [name, target], **({"allowzero": 1} if 0 in shape else {}))


def _line_through(known: Extent, wanted: Size) -> tuple[int, int] | None:
    """(a, b) with `wanted = a * known + b` in all recordings, or None."""
    if not isinstance(known, Size):
        return None
    pairs = sorted(set(zip(known.values, wanted.values, strict=True)))
    (x, y), (last_x, last_y) = pairs[0], pairs[-1]
    if x == last_x or (last_y - y) % (last_x - x):
        return None
    factor = (last_y - y) // (last_x - x)
    rest = y - factor * x
    return (factor, rest) if all(b == factor * a + rest for a, b in pairs) else None


def _host(tensor: Any) -> Any:
    array = tensor.to("cpu").numpy()
    return array.astype("float32") if array.dtype.name == "bfloat16" else array

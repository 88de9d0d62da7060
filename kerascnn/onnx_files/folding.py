"""Nodes of constants, computed while a file is read, and arithmetic with sizes that are open."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kerascnn.onnx_files.importer import MOST_ELEMENTS, OPEN, Node, Value
from kerascnn.onnx_files.tensors import dtype_of

FOLDERS: dict[str, Callable[[Node], Any]] = {}
_TWO = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Pow": np.power}
_COMPARED = {"Equal": np.equal, "Less": np.less, "Greater": np.greater, "And": np.logical_and}
_ONE = {
    "Neg": np.negative,
    "Sqrt": np.sqrt,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Exp": np.exp,
    "Abs": np.abs,
    "Reciprocal": np.reciprocal,
    "Not": np.logical_not,
}


def folds(*names: str) -> Callable[[Callable[[Node], Any]], Callable[[Node], Any]]:
    """Registers what computes these ops of constants."""

    def register(function: Callable[[Node], Any]) -> Callable[[Node], Any]:
        for name in names:
            FOLDERS[name] = function
        return function

    return register


def fold(node: Node) -> Any:
    """The result of a node of constants; None where it is one that the model has to compute.

    Raises:
        ImportedError: where the result would be larger than what the file can need.
    """
    folder = FOLDERS.get(node.op)
    if folder is None:
        return None
    if any(node.has_input(i) and isinstance(node.input(i), Value) for i in range(len(node.inputs))):
        return None
    if node.op == "Constant" or node.inputs:
        with np.errstate(all="ignore"):
            found = folder(node)
        if found is OPEN:
            return sizes([OPEN]).reshape(())
        return found if found is None or isinstance(found, Value) else np.asarray(found)
    return None


def sizes(numbers: list[Any]) -> Any:
    """A list of sizes as an array, of objects where one is open."""
    if any(n is OPEN for n in numbers):
        found = np.empty(len(numbers), object)
        found[:] = numbers
        return found
    return np.array(numbers, "int64")


def check_size(node: Node, shape: Any) -> None:
    """Refuses a constant for which there is no room, given what the file has bytes for."""
    size = math.prod(shape)
    if len(shape) > 32 or any(n < 0 for n in shape) or size > node.importer.room:
        raise node.error(f"a constant of the shape {list(shape)[:40]} is not made.")
    node.importer.room -= size


@folds("Constant")
def _constant(node: Node) -> Any:
    if node.has("value"):
        return node.tensor("value")
    for name, read, dtype in (
        ("value_int", node.whole, "int64"),
        ("value_ints", node.ints, "int64"),
        ("value_float", node.real, "float32"),
    ):
        if node.has(name):
            return np.array(read(name), dtype)
    raise node.error("it has no tensor and no whole numbers.")


@folds("ConstantOfShape")
def _constant_of_shape(node: Node) -> Any:
    value = node.tensor("value") if node.has("value") else np.zeros(1, "float32")
    shape = node.numbers(0)
    if value.size != 1:
        raise node.error("its value is no single number.")
    if any(n is OPEN for n in shape):
        if shape[0] is not OPEN or any(n is OPEN for n in shape[1:]):
            raise node.error(f"it makes {shape[:40]}.")
        from kerascnn.onnx_files.read_ops import spread_over_batch  # which needs this module

        array = np.full([1] * len(shape), value.reshape(()), value.dtype)
        return spread_over_batch(node, array, shape)
    check_size(node, shape)
    return np.full(shape, value.reshape(()), value.dtype)


@folds("Identity")
def _identity(node: Node) -> Any:
    return node.input(0)


@folds("Shape")
def _shape(node: Node) -> Any:
    return sizes(list(node.constant(0).shape)[node.whole("start", 0) : node.whole("end", None)])


@folds("Gather")
def _gather(node: Node) -> Any:
    data, indices = node.constant(0), node.constant(1)
    axis = node.axis(node.whole("axis", 0), data.ndim)
    size = data.shape[axis]
    if indices.dtype.kind not in "iu" or (
        indices.size and not -size <= indices.min() <= indices.max() < size
    ):
        raise node.error(f"its places are outside of an axis of {size}.")
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    check_size(node, shape)
    return np.take(data, indices, axis)


@folds("Unsqueeze", "Squeeze")
def _squeeze(node: Node) -> Any:
    data = node.constant(0)
    axes = node.ints("axes") if node.has("axes") else None
    if axes is None and node.has_input(1):
        axes = node.known_numbers(1)
    if node.op == "Squeeze":
        if axes is None:
            return data.squeeze()
        axes = node.axes(axes, data.ndim)
        if any(data.shape[axis] != 1 for axis in axes):
            raise node.error(f"the axes {axes} of {data.shape} have more than one element.")
        return data.squeeze(tuple(axes))
    if axes is None or len(axes) + data.ndim > 32:
        raise node.error("its axes are missing, or too many.")
    return np.expand_dims(data, tuple(node.axes(axes, data.ndim + len(axes))))


@folds("Concat")
def _concat(node: Node) -> Any:
    arrays = [node.constant(i) for i in range(len(node.inputs))]
    if len({a.ndim for a in arrays}) != 1 or arrays[0].ndim == 0:
        raise node.error("its inputs have different numbers of axes.")
    axis = node.axis(node.whole("axis", 0), arrays[0].ndim)
    rest = {(*a.shape[:axis], *a.shape[axis + 1 :]) for a in arrays}
    if len(rest) != 1:
        raise node.error("its inputs do not fit one another.")
    total = sum(a.size for a in arrays)
    check_size(node, (total,))
    return np.concatenate(arrays, axis)


@folds("Slice")
def _slice(node: Node) -> Any:
    data = node.constant(0)
    starts, ends = node.known_numbers(1), node.known_numbers(2)
    axes = node.known_numbers(3) if node.has_input(3) else list(range(len(starts)))
    steps = node.known_numbers(4) if node.has_input(4) else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.error("its starts, ends, axes and steps do not fit one another.")
    index: list[Any] = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, node.axes(axes, data.ndim), steps, strict=True):
        stop: int | None = end
        if step < 0 and end < -data.shape[axis]:
            stop = None
        index[axis] = slice(start, stop, step)
    return data[tuple(index)]


@folds("Reshape")
def _reshape(node: Node) -> Any:
    data, shape = node.constant(0), node.known_numbers(1)
    if not node.whole("allowzero", 0):
        if any(n == 0 and i >= data.ndim for i, n in enumerate(shape)):
            raise node.error(f"its shape {shape[:40]} keeps axes that are not there.")
        shape = [data.shape[i] if n == 0 else n for i, n in enumerate(shape)]
    if len(shape) > 32:
        raise node.error(f"its shape has {len(shape)} axes.")
    try:
        return data.reshape(shape)
    except ValueError:
        raise node.error(f"{data.shape} can't become {shape}.") from None


@folds("Transpose")
def _transpose(node: Node) -> Any:
    data = node.constant(0)
    order = node.axes(node.ints("perm", list(range(data.ndim))[::-1]), data.ndim)
    if len(order) != data.ndim:
        raise node.error(f"its order {order} does not fit {data.ndim} axes.")
    return data.transpose(order)


@folds("Expand")
def _expand(node: Node) -> Any:
    data, shape = node.constant(0), node.numbers(1)
    if any(n is OPEN for n in shape):
        return None
    check_size(node, shape)
    try:
        wide = np.broadcast_shapes(data.shape, tuple(shape))
    except ValueError:
        raise node.error(f"{data.shape} does not become {shape}.") from None
    check_size(node, wide)
    return np.broadcast_to(data, wide)


@folds("Cast")
def _cast(node: Node) -> Any:
    data = node.constant(0)
    dtype = dtype_of(node.whole("to", 0), f"What {node.label} casts to")
    if data.dtype == object or dtype == "bfloat16":
        return data if data.dtype == object and dtype in ("int64", "int32") else None
    return data.astype(dtype)


@folds("Range")
def _range(node: Node) -> Any:
    start, limit, step = (node.constant(i) for i in range(3))
    if any(a.size != 1 or a.dtype.kind not in "iuf" for a in (start, limit, step)):
        raise node.error("it does not count between numbers.")
    first, last, by = (a.reshape(()).item() for a in (start, limit, step))
    count = (last - first) / by if by else math.inf
    if not count < MOST_ELEMENTS:
        raise node.error(f"{count} numbers are not made.")
    check_size(node, (max(math.ceil(count), 0),))
    return (np.arange(max(math.ceil(count), 0)) * by + first).astype(start.dtype)


@folds(*_TWO, *_COMPARED, "Div")
def _two(node: Node) -> Any:
    a, b = node.constant(0), node.constant(1)
    if object in (a.dtype, b.dtype):
        return _with_open(node, a, b)
    if a.dtype != b.dtype:
        raise node.error(f"its inputs have the dtypes {a.dtype} and {b.dtype}.")
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise node.error(f"{a.shape} and {b.shape} do not fit one another.") from None
    check_size(node, shape)
    if node.op in _COMPARED:
        return _COMPARED[node.op](a, b)
    if node.op == "Div":
        if a.dtype.kind == "f":
            return np.divide(a, b)
        if not b.all():
            raise node.error("it divides by 0.")
        return np.trunc(np.divide(a, b)).astype(a.dtype)
    if node.op == "Pow" and a.dtype.kind != "f":
        return None
    return _TWO[node.op](a, b).astype(a.dtype)


def _with_open(node: Node, a: Any, b: Any) -> Any:
    """A size that is open stays so where it is multiplied by 1 or 0 is added."""
    other = b if a.dtype == object else a
    known = other.dtype != object and other.size == 1
    neutral = known and other.reshape(()).item() == (0 if node.op in ("Add", "Sub") else 1)
    if neutral and node.op in ("Add", "Mul"):
        return a if a.dtype == object else b
    raise node.error("it computes with the size of an open axis.")


@folds(*_ONE)
def _one(node: Node) -> Any:
    data = node.constant(0)
    if data.dtype == object or (node.op != "Not" and data.dtype.kind != "f" and node.op != "Neg"):
        return None
    return _ONE[node.op](data).astype(data.dtype)

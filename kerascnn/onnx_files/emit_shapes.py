"""Emitters of ops that move, select and reduce elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn.onnx_files.emitter import FIRST, PLAIN, Emitter, emits, first_axes, last_axes
from kerascnn.recordings.recording import Call
from kerascnn.recordings.sizes import Extent, Shape, Size, minus, plus, times

_END = np.iinfo("int64").max


def _only_first(e: Emitter, value: int) -> bool:
    forms = e.forms(value)
    return FIRST in forms and PLAIN not in forms and e.array(value) is None


def _axis_in_first(axis: int, rank: int) -> int:
    """Where an axis of the core's layout is with channels first."""
    return 0 if axis == 0 else 1 if axis == rank - 1 else axis + 1


def _without_ones(shape: Shape) -> list[Extent]:
    return [n for n in shape if n != 1]


@emits("reshape")
def _reshape(e: Emitter, call: Call) -> None:
    x, y = call.inputs[0], call.outputs[0]
    before, after = e.shape(x), e.shape(y)
    if before == after:
        for layout, name in (e.forms(x) or {PLAIN: e.plain(x)}).items():
            e.put(y, name, layout)
        return
    if _only_first(e, x):
        name = e.forms(x)[FIRST]
        if e.lies_alike(x):
            e.put(y, e.reshaped(name, after), PLAIN)
            return
        # Axes of one element come or go between the batch and the channels.
        ends = before[0] == after[0] and before[-1] == after[-1] if after else False
        if ends and len(after) > 2 and _without_ones(before[1:-1]) == _without_ones(after[1:-1]):
            moved = tuple(after[i] for i in first_axes(len(after)))
            e.put(y, e.reshaped(name, moved), FIRST)
            return
    e.put(y, e.reshaped(e.plain(x), after), PLAIN)


@emits("transpose")
def _transpose(e: Emitter, call: Call) -> None:
    x, y = call.inputs[0], call.outputs[0]
    permutation = list(call.attributes["permutation"])
    rank = len(permutation)
    forms = e.forms(x)
    if rank > 2 and permutation == first_axes(rank) and FIRST in forms:
        e.put(y, forms[FIRST], PLAIN)
    elif rank > 2 and permutation == last_axes(rank) and not _only_first(e, x):
        e.put(y, e.plain(x), FIRST)
    elif rank > 2 and _only_first(e, x):
        combined = [_axis_in_first(axis, rank) for axis in permutation]
        name = forms[FIRST]
        if combined != sorted(combined):
            name = e.node("Transpose", [name], perm=combined)
        e.put(y, name, PLAIN)
    else:
        e.put(y, e.node("Transpose", [e.plain(x)], perm=permutation), PLAIN)


@emits("broadcast_to")
def _broadcast_to(e: Emitter, call: Call) -> None:
    x, y = call.inputs[0], call.outputs[0]
    after = e.shape(y)
    if _only_first(e, x) and e.rank(x) == len(after):
        target = e.extents(tuple(after[i] for i in first_axes(len(after))))
        e.put(y, e.node("Expand", [e.forms(x)[FIRST], target]), FIRST)
        return
    e.put(y, e.node("Expand", [e.plain(x), e.extents(after)]), PLAIN)


@emits("concatenate")
def _concatenate(e: Emitter, call: Call) -> None:
    y = call.outputs[0]
    rank = e.rank(y)
    axis = call.attributes["axis"] % rank
    values = [v for v in call.inputs if e.array(v) is None]
    first = sum(_only_first(e, v) for v in values)
    if rank > 2 and first and 2 * first >= len(values):
        names = [e.first(v) for v in call.inputs]
        e.put(y, e.node("Concat", names, axis=_axis_in_first(axis, rank)), FIRST)
        return
    e.put(y, e.node("Concat", [e.plain(v) for v in call.inputs], axis=axis), PLAIN)


class _Sliced:
    """The axes on which a slice takes a part, as inputs of ONNX's Slice."""

    def __init__(self, e: Emitter, call: Call, shape: Shape) -> None:
        a = call.attributes
        self.axes: list[int] = []
        starts: list[Extent] = []
        ends: list[Extent] = []
        self.steps: list[int] = []
        rows = zip(shape, a["starts"], a["sizes"], a["strides"], strict=True)
        for axis, (n, start, size, step) in enumerate(rows):
            if start == 0 and size == n and (step == 1 or n == 1):
                continue
            if isinstance(step, Size):
                raise e.error("its steps depend on the size of an open axis.")
            self.axes.append(axis)
            self.steps.append(step)
            end = plus(start, times(size, step))
            if step < 0 and start == minus(n, 1):
                start = _END  # the last one, however many there are
            if step < 0 and (isinstance(end, Size) or end < 0):
                whole = isinstance(size, Size) or size >= 0
                end = -_END if whole and _reaches_begin(call, axis) else end
            starts.append(start)
            ends.append(end)
        self.starts, self.ends = tuple(starts), tuple(ends)

    def inputs(self, e: Emitter, axes: list[int]) -> list[str]:
        return [e.extents(self.starts), e.extents(self.ends), e.ints(axes), e.ints(self.steps)]


def _reaches_begin(call: Call, axis: int) -> bool:
    """Tells whether a slice with a negative step ends with the first elements of its axis."""
    start, size = call.attributes["starts"][axis], call.attributes["sizes"][axis]
    step = call.attributes["strides"][axis]
    last = plus(start, times(minus(size, 1), step))
    return not isinstance(last, Size) and last < -step


@emits("slice")
def _slice(e: Emitter, call: Call) -> None:
    x, y = call.inputs[0], call.outputs[0]
    rank = e.rank(x)
    part = _Sliced(e, call, e.shape(x))
    layout = FIRST if rank > 2 and _only_first(e, x) else PLAIN
    name = e.forms(x)[FIRST] if layout is FIRST else e.plain(x)
    if part.axes:
        axes = part.axes
        if layout is FIRST:
            axes = [_axis_in_first(axis, rank) for axis in axes]
        name = e.node("Slice", [name, *part.inputs(e, axes)])
    e.put(y, name, layout)


@emits("slice_grad")
def _spread(e: Emitter, call: Call) -> None:
    """Zeros around the elements of a slice, and between them where it has steps."""
    x, y = call.inputs[0], call.outputs[0]
    rank, a = e.rank(x), call.attributes
    if e.dtype(x) == "bool":
        raise e.error("ONNX pads no booleans. Cast them to integers before.")
    if any(isinstance(n, Size) or n < 1 for n in a["strides"]):
        raise e.error("its steps are negative, or depend on the size of an open axis.")
    steps = any(n != 1 for n in a["strides"])
    layout = FIRST if rank > 2 and _only_first(e, x) and not steps else PLAIN
    name = e.forms(x)[FIRST] if layout is FIRST else e.plain(x)
    sizes = list(e.shape(x))
    for axis, step in enumerate(a["strides"]):
        if step > 1 and sizes[axis] not in (0, 1):
            name, sizes = _with_gaps(e, call, name, sizes, axis, step)
    before = list(a["starts"])
    after = [
        minus(minus(n, start), size)
        for n, start, size in zip(e.shape(y), before, sizes, strict=True)
    ]
    if any(not isinstance(n, int) for n in [*before, *after]):
        pads = e.extents((*before, *after))
    else:
        order = first_axes(rank) if layout is FIRST else range(rank)
        pads = e.ints([*(before[i] for i in order), *(after[i] for i in order)])
    if any(isinstance(n, Size) or n for n in [*before, *after]):
        name = e.node("Pad", [name, pads])
    e.put(y, name, layout)


def _with_gaps(
    e: Emitter, call: Call, name: str, sizes: list[Extent], axis: int, step: int
) -> tuple[str, list[Extent]]:
    """Puts `step - 1` zeros behind each element but the last along an axis."""
    rank = len(sizes)
    wide = e.node("Unsqueeze", [name, e.ints([axis + 1])])
    pads = [0] * (2 * rank + 2)
    pads[rank + 1 + axis + 1] = step - 1
    wide = e.node("Pad", [wide, e.ints(pads)])
    longer = times(sizes[axis], step)
    long = [*sizes[:axis], longer, *sizes[axis + 1 :]]
    name = e.reshaped(wide, tuple(long))
    cut: Extent = minus(longer, step - 1)
    name = e.node("Slice", [name, e.ints([0]), e.extents((minus(0, step - 1),)), e.ints([axis])])
    return name, [*sizes[:axis], cut, *sizes[axis + 1 :]]


_REDUCTIONS = {
    "reduce_sum": "ReduceSum",
    "reduce_mean": "ReduceMean",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
}


@emits(*_REDUCTIONS)
def _reduce(e: Emitter, call: Call) -> None:
    reduce_axes(e, call, _REDUCTIONS[call.op], call.inputs[0], call.outputs[0])


def reduce_axes(e: Emitter, call: Call, op: str, x: int, y: int) -> None:
    """A reduction over the axes of a call, in the layout that its input has."""
    rank = e.rank(x)
    axes = sorted(axis % rank for axis in call.attributes["axes"]) or list(range(rank))
    keepdims = call.attributes["keepdims"]
    if rank == 0:
        e.put(y, e.plain(x))
        return
    layout = FIRST if rank > 2 and _only_first(e, x) else PLAIN
    result = layout
    if layout is FIRST and not keepdims:
        kept = [axis for axis in range(rank) if axis not in axes]
        moved = [axis for axis in first_axes(rank) if axis in kept]
        if kept == moved:
            result = PLAIN
        elif moved != [kept[i] for i in first_axes(len(kept))]:
            layout = result = PLAIN
    if layout is FIRST:
        axes = sorted(_axis_in_first(axis, rank) for axis in axes)
    name = e.forms(x)[FIRST] if layout is FIRST else e.plain(x)
    e.put(y, e.node(op, [name, e.ints(axes)], keepdims=int(keepdims)), result)


@emits("softmax", "log_softmax")
def _softmax(e: Emitter, call: Call) -> None:
    x, y = call.inputs[0], call.outputs[0]
    rank = e.rank(x)
    axis = call.attributes["axis"] % rank
    op = "Softmax" if call.op == "softmax" else "LogSoftmax"
    if rank > 2 and _only_first(e, x):
        name = e.node(op, [e.forms(x)[FIRST]], axis=_axis_in_first(axis, rank))
        e.put(y, name, FIRST)
        return
    e.put(y, e.node(op, [e.plain(x)], axis=axis))


@emits("argmax")
def _argmax(e: Emitter, call: Call) -> None:
    axis = call.attributes["axis"] % e.rank(call.inputs[0])
    found = e.node("ArgMax", [e.plain(call.inputs[0])], axis=axis, keepdims=0)
    e.put(call.outputs[0], _as_type(e, found, "int32"))


def _as_type(e: Emitter, name: str, dtype: str) -> str:
    return e.node("Cast", [name], to=e.file.element_type(dtype))


@emits("argsort")
def _argsort(e: Emitter, call: Call) -> None:
    x = call.inputs[0]
    axis = call.attributes["axis"] % e.rank(x)
    count = e.extents((e.shape(x)[axis],))
    largest = int(call.attributes["descending"])
    _, places = e.node_with("TopK", [e.plain(x), count], 2, axis=axis, largest=largest, sorted=1)
    e.put(call.outputs[0], _as_type(e, places, "int32"))


def _in_bounds(e: Emitter, indices: int, count: Extent) -> str:
    """Indices within an axis: the core moves others to its ends, ONNX counts or refuses them."""
    array = e.array(indices)
    if array is not None and isinstance(count, int):
        clipped = np.clip(array, 0, count - 1)
        return e.constant_as(indices, clipped, f"places of {count}")
    dtype = e.dtype(indices)
    last = _as_type(e, e.scalar(minus(count, 1)), dtype)
    return e.node("Min", [e.node("Max", [e.plain(indices), e.number(0, dtype)]), last])


@emits("gather")
def _gather(e: Emitter, call: Call) -> None:
    x, indices = call.inputs
    axis = call.attributes["axis"] % e.rank(x)
    places = _in_bounds(e, indices, e.shape(x)[axis])
    e.put(call.outputs[0], e.node("Gather", [e.plain(x), places], axis=axis))


@emits("gather_grad")
def _scatter(e: Emitter, call: Call) -> None:
    values, indices = call.inputs
    shape = tuple(call.attributes["input_shape"])
    if call.attributes["axis"] % len(shape) != 0:
        raise e.error("it adds along another axis than the first one.")
    places = e.node("Unsqueeze", [_in_bounds(e, indices, shape[0]), e.ints([-1])])
    places = _as_type(e, places, "int64")
    zeros = e.node("Expand", [e.number(0, e.dtype(values)), e.extents(shape)])
    name = e.node("ScatterND", [zeros, places, e.plain(values)], reduction="add")
    e.put(call.outputs[0], name)


@emits("one_hot")
def _one_hot(e: Emitter, call: Call) -> None:
    """Compares with all classes, so that an index of none of them gives zeros."""
    indices, dtype = call.inputs[0], e.dtype(call.inputs[0])
    classes = e.file.constant(np.arange(call.attributes["depth"], dtype=dtype), "classes")
    wide = e.node("Unsqueeze", [e.plain(indices), e.ints([-1])])
    e.put(call.outputs[0], _as_type(e, e.node("Equal", [wide, classes]), e.dtype(call.outputs[0])))


def moments(e: Emitter, x: int, axes: list[int]) -> list[Any]:
    """Names of the deviations from the mean, the mean and the variance over axes, with these kept.

    The values are in the core's layout. What rounding left of the mean is taken off too, which
    counts where the mean is large.
    """
    over = e.ints(axes)
    rough = e.node("ReduceMean", [e.plain(x), over], keepdims=1)
    apart = e.node("Sub", [e.plain(x), rough])
    rest = e.node("ReduceMean", [apart, over], keepdims=1)
    mean, apart = e.node("Add", [rough, rest]), e.node("Sub", [apart, rest])
    variance = e.node("ReduceMean", [e.node("Mul", [apart, apart]), over], keepdims=1)
    return [apart, mean, variance]


@emits("column_moments")
def _column_moments(e: Emitter, call: Call) -> None:
    x = call.inputs[0]
    outer = call.attributes.get("outer_axes", 0)
    _, mean, variance = moments(e, x, list(range(outer, e.rank(x) - 1)))
    for value, name in zip(call.outputs, (mean, variance), strict=True):
        e.put(value, e.reshaped(name, e.shape(value)))


@emits("batch_norm")
def _batch_norm(e: Emitter, call: Call) -> None:
    """Normalization by the batch, for layers that a `call` runs as in training."""
    x, gamma, beta = call.inputs
    dtype = e.dtype(x)
    apart, mean, variance = moments(e, x, list(range(e.rank(x) - 1)))
    shifted = e.node("Add", [variance, e.number(call.attributes["epsilon"], dtype)])
    inverse = e.node("Reciprocal", [e.node("Sqrt", [shifted])])
    scaled = e.node("Mul", [e.node("Mul", [apart, inverse]), e.plain(gamma)])
    e.put(call.outputs[0], e.node("Add", [scaled, e.plain(beta)]))
    for value, name in zip(call.outputs[1:], (mean, variance, inverse), strict=True):
        e.put(value, e.reshaped(name, e.shape(value)))

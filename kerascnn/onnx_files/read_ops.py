"""Readers of ONNX's ops without weights: they become functions of `kerascnn.ops`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerascnn import activations, layers, ops
from kerascnn.onnx_files import folding
from kerascnn.onnx_files.emitter import first_axes
from kerascnn.onnx_files.importer import OPEN, Node, Value
from kerascnn.onnx_files.layers import Elementwise
from kerascnn.onnx_files.read_layers import reads, with_weight
from kerascnn.onnx_files.tensors import dtype_of

_MINUS, _END = -(1 << 62), 1 << 62


def put(x: Value, result: Any) -> Value:
    """A result in the layout of an operand."""
    return Value(last=result) if x.only_last else Value(plain=result)


def _taken(x: Value) -> Any:
    return x.last if x.only_last else x.plain


def _each(x: Value, function: Callable[[Any], Any]) -> Value:
    """A function of single elements, in whatever form the operand has."""
    if x.rows is not None:
        return Value(rows=function(x.rows))
    return put(x, function(_taken(x)))


# Single elements ----------------------------------------------------------------------------------

_UNARY: dict[str, Callable[[Any], Any]] = {
    "Abs": ops.abs,
    "Neg": ops.negative,
    "Exp": ops.exp,
    "Log": ops.log,
    "Sqrt": ops.sqrt,
    "Reciprocal": ops.reciprocal,
    "Floor": ops.floor,
    "Ceil": ops.ceil,
    "Round": ops.round,
    "Sign": ops.sign,
    "Sigmoid": ops.sigmoid,
    "Tanh": ops.tanh,
    "Erf": ops.erf,
    "Softplus": ops.softplus,
    "Softsign": ops.softsign,
    "Mish": activations.mish,
    "Sin": ops.sin,
    "Cos": ops.cos,
    "Tan": ops.tan,
    "Asin": ops.arcsin,
    "Acos": ops.arccos,
    "Atan": ops.arctan,
    "Sinh": ops.sinh,
    "Cosh": ops.cosh,
    "Asinh": ops.arcsinh,
    "Acosh": ops.arccosh,
    "Atanh": ops.arctanh,
    "Not": ops.logical_not,
    "IsNaN": ops.isnan,
    "IsInf": ops.isinf,
    "HardSwish": ops.hard_silu,
}


@reads(*_UNARY)
def _unary(node: Node) -> list[Any]:
    x = node.value(0)
    return [_each(x, _UNARY[node.op])]


@reads("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "ThresholdedRelu", "Gelu")
def _activation(node: Node) -> list[Any]:
    return [_each(node.value(0), _activation_of(node))]


def _activation_of(node: Node) -> Callable[[Any], Any]:
    name = node.importer.name(node.name)
    alpha = node.real("alpha", {"LeakyRelu": 0.01, "HardSigmoid": 0.2}.get(node.op, 1.0))
    beta = node.real("beta", 0.5)
    approximate = node.text("approximate", "none") == "tanh"
    known: dict[str, Callable[[], Callable[[Any], Any]]] = {
        "Relu": lambda: layers.ReLU(name=name),
        "LeakyRelu": lambda: layers.LeakyReLU(negative_slope=alpha, name=name),
        "Elu": lambda: layers.ELU(alpha=alpha, name=name),
        "Celu": lambda: lambda x: ops.celu(x, alpha),
        "ThresholdedRelu": lambda: lambda x: ops.threshold(x, alpha, 0.0),
        "Gelu": lambda: lambda x: ops.gelu(x, approximate=approximate),
        "HardSigmoid": lambda: lambda x: ops.clip(ops.add(ops.multiply(x, alpha), beta), 0.0, 1.0),
        "Selu": lambda: ops.selu,
    }
    if node.op == "Selu" and (node.has("alpha") or node.has("gamma")):
        usual = abs(alpha - 1.6732632) < 1e-4 and abs(node.real("gamma", 1.0507) - 1.0507) < 1e-4
        if not usual:
            raise node.error("other factors than the usual ones are not known.")
    return known[node.op]()


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": ops.add,
    "Sub": ops.subtract,
    "Mul": ops.multiply,
    "Pow": ops.power,
    "Max": ops.maximum,
    "Min": ops.minimum,
    "Equal": ops.equal,
    "Less": ops.less,
    "LessOrEqual": ops.less_equal,
    "Greater": ops.greater,
    "GreaterOrEqual": ops.greater_equal,
    "And": ops.logical_and,
    "Or": ops.logical_or,
    "Xor": ops.logical_xor,
    "Mod": ops.mod,
}
_WITH_WEIGHT = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min")


def aligned(node: Node, values: Sequence[Any]) -> tuple[list[Any], bool]:
    """Operands that broadcast against one another, in one layout; whether that is channels last."""
    rank = max(v.rank if isinstance(v, Value) else v.ndim for v in values)
    whole = [v for v in values if isinstance(v, Value) and v.rank == rank]
    last = (
        rank > 2
        and sum(v.only_last for v in whole) * 2 > len(whole) - 1
        and any(v.only_last for v in whole)
    )
    operands = []
    for v in values:
        if isinstance(v, Value):
            if not last:
                operands.append(v.plain)
            elif v.rank == rank:
                operands.append(v.last)
            else:
                wide = _widened(v.plain, rank)
                operands.append(ops.transpose(wide, [0, *range(2, rank), 1]))
            continue
        if v.dtype == object:
            raise node.error("it computes with the size of an open axis.")
        if last and v.ndim:
            v = v.reshape((1,) * (rank - v.ndim) + v.shape)
            v = v.transpose([0, *range(2, rank), 1])
        operands.append(v)
    return operands, last


def _widened(x: Any, rank: int) -> Any:
    return ops.expand_dims(x, list(range(rank - len(x.shape)))) if len(x.shape) < rank else x


@reads(*_BINARY, "Div")
def _binary(node: Node) -> list[Any]:
    values = [node.input(i) for i in range(len(node.inputs))]
    if len(values) == 1 and node.op in ("Max", "Min"):
        return values
    if len(values) < 2 or (len(values) > 2 and node.op not in ("Max", "Min")):
        raise node.error(f"it has {len(values)} inputs.")
    for place, other in ((1, 0), (0, 1)):
        weight, x = values[place], values[other]
        known = node.op in _WITH_WEIGHT and node.importer.is_weight(node.inputs[place])
        if known and len(values) == 2 and isinstance(x, Value) and weight.dtype.kind == "f":
            found = with_weight(node, x, weight, weight_first=place == 0)
            if found is not None:
                return [found]
    dtypes = {str(v.dtype) for v in values}
    if len(dtypes) > 1:
        raise node.error(f"its inputs have the dtypes {sorted(dtypes)}.")
    operands, last = aligned(node, values)
    result = operands[0]
    for operand in operands[1:]:
        result = _combined(node, result, operand, dtypes.pop() if dtypes else "")
    return [Value(last=result) if last else Value(plain=result)]


def _combined(node: Node, a: Any, b: Any, dtype: str) -> Any:
    if node.op == "Mod" and node.whole("fmod", 0):
        raise node.error("fmod=1 is not known.")
    if node.op == "Div":
        if dtype.startswith(("int", "uint")):
            # ONNX rounds towards 0.
            return ops.cast(ops.trunc(ops.divide(ops.cast(a, "float64"), b)), dtype)
        return ops.divide(a, b)
    return _BINARY[node.op](a, b)


@reads("Sum", "Mean")
def _sum(node: Node) -> list[Any]:
    operands, last = aligned(node, [node.input(i) for i in range(len(node.inputs))])
    total = operands[0]
    for operand in operands[1:]:
        total = ops.add(total, operand)
    if node.op == "Mean":
        total = ops.divide(total, float(len(operands)))
    return [Value(last=total) if last else Value(plain=total)]


@reads("Where")
def _where(node: Node) -> list[Any]:
    operands, last = aligned(node, [node.input(i) for i in range(3)])
    result = ops.where(*operands)
    return [Value(last=result) if last else Value(plain=result)]


@reads("Clip")
def _clip(node: Node) -> list[Any]:
    x = node.value(0)
    limits = []
    for place, default in ((1, -math.inf), (2, math.inf)):
        limit = node.constant(place) if node.has_input(place) else np.array(default)
        if limit.size != 1 or limit.dtype.kind not in "iuf":
            raise node.error("its limits are no numbers.")
        limits.append(float(limit.reshape(())))
    if not limits[0] <= limits[1]:
        raise node.error(f"its limits {limits} are none.")
    if limits[0] == -math.inf:
        return [_each(x, lambda each: ops.minimum(each, limits[1]))]
    if limits[1] == math.inf:
        return [_each(x, lambda each: ops.maximum(each, limits[0]))]
    return [_each(x, lambda each: ops.clip(each, *limits))]


@reads("Cast")
def _cast(node: Node) -> list[Any]:
    x = node.value(0)
    dtype = dtype_of(node.whole("to", 0), f"What {node.label} casts to")
    return [_each(x, lambda each: ops.cast(each, dtype))]


@reads("Identity")
def _identity(node: Node) -> list[Any]:
    return [node.input(0)]


# Shapes -------------------------------------------------------------------------------------------


@reads("Shape")
def _shape(node: Node) -> list[Any]:
    x = node.value(0)
    sizes: list[Any] = [OPEN if n is None else n for n in x.shape]
    begin, end = node.whole("start", 0), node.whole("end", None)
    return [folding.sizes(sizes[begin:end])]


@reads("Reshape")
def _reshape(node: Node) -> list[Any]:
    x = node.value(0)
    target = node.numbers(1)
    if len(target) > 32:
        raise node.error(f"its shape has {len(target)} axes.")
    for axis, n in enumerate(target):
        if n == 0 and not node.whole("allowzero", 0):
            if axis >= x.rank:
                raise node.error(f"its shape {target} keeps axis {axis} of {x.shape}.")
            target[axis] = OPEN if x.shape[axis] is None else x.shape[axis]
    unknown = [i for i, n in enumerate(target) if n is OPEN or n == -1]
    if len(unknown) > 1 and all(target[i] is OPEN for i in unknown[1:]) and target[0] is OPEN:
        unknown = []
    if len(unknown) > 1:
        # The batch stays what it is, and another size is what is left.
        rest = [i for i in unknown if i > 0]
        if x.shape[:1] != (None,) or target[0] is not OPEN or len(rest) != 1:
            raise node.error(f"its shape {target} has several open sizes.")
        return [_reshaped(node, x, [n if n is not OPEN else -1 for n in target[1:]])]
    sample = x.shape[1:]
    per_sample = target and unknown == [0] and x.shape[:1] == (None,) and None not in sample
    if per_sample and math.prod(target[1:]) == math.prod(sample):  # type: ignore[arg-type]
        return [_reshaped(node, x, target[1:])]
    if any(n is not OPEN and n < -1 for n in target):
        raise node.error(f"its shape {target} is none.")
    if x.rows is not None and _is_shape(target, x.rows.shape):
        return [Value(plain=x.rows)]
    whole = x.rank > 2 and x.shape[:1] == (None,) and None not in x.shape[1:]
    if whole and len(target) == 2 and unknown == [0] and target[1] == x.shape[-1]:
        return [Value(rows=x.plain)]
    return [Value(plain=ops.reshape(x.plain, [-1 if n is OPEN else n for n in target]))]


def _is_shape(target: list[Any], shape: tuple[int | None, ...]) -> bool:
    return len(target) == len(shape) and all(
        (n is OPEN or n == -1) if size is None else n == size
        for n, size in zip(target, shape, strict=True)
    )


def _reshaped(node: Node, x: Value, sample: list[int]) -> Value:
    """Reshapes each sample by itself, so that the batch stays open."""
    shape = x.shape
    if x.only_last and all(n == 1 for n in shape[2:]) and None not in shape[1:]:
        inputs = x.last  # the elements lie the same way
    else:
        inputs = x.plain
    layer = layers.Reshape(tuple(sample), name=node.importer.name(node.name))
    return Value(plain=layer(inputs))


@reads("Flatten")
def _flatten(node: Node) -> list[Any]:
    x = node.value(0)
    if node.axis(node.whole("axis", 1), x.rank + 1) != 1:
        raise node.error("another axis than 1 is not known.")
    if x.rank < 2 or None in x.shape[1:]:
        raise node.error(f"its input has the shape {x.shape}.")
    return [_reshaped(node, x, [math.prod(x.shape[1:])])]  # type: ignore[arg-type]


def _listed_axes(node: Node, place: int) -> list[int] | None:
    if node.has("axes"):
        return node.ints("axes")
    return node.known_numbers(place) if node.has_input(place) else None


@reads("Squeeze", "Unsqueeze")
def _squeeze(node: Node) -> list[Any]:
    x = node.value(0)
    axes = _listed_axes(node, 1)
    if node.op == "Squeeze":
        if axes is None:
            axes = [i for i, n in enumerate(x.shape) if n == 1]
        axes = node.axes(axes, x.rank)
        return [Value(plain=ops.squeeze(x.plain, axes)) if axes else x]
    if axes is None or len(axes) + x.rank > 32:
        raise node.error("its axes are missing, or too many.")
    return [Value(plain=ops.expand_dims(x.plain, sorted(node.axes(axes, x.rank + len(axes)))))]


@reads("Transpose")
def _transpose(node: Node) -> list[Any]:
    x = node.value(0)
    order = node.axes(node.ints("perm", list(range(x.rank))[::-1]), x.rank)
    if len(order) != x.rank:
        raise node.error(f"its order {order} does not fit {x.rank} axes.")
    to_last = [0, *range(2, x.rank), 1]
    if x.rank > 2 and order == to_last:
        return [Value(plain=x.last)]
    if x.rank > 2 and order == first_axes(x.rank) and not x.only_last:
        return [Value(last=x.plain)]
    return [Value(plain=ops.transpose(x.plain, order))]


def in_last(axis: int, rank: int) -> int:
    return 0 if axis == 0 else rank - 1 if axis == 1 else axis - 1


@reads("Concat")
def _concat(node: Node) -> list[Any]:
    values = [node.value(i) for i in range(len(node.inputs))]
    if not values:
        raise node.error("it has no inputs.")
    rank = values[0].rank
    axis = node.axis(node.whole("axis", 0), rank)
    if len(values) == 1:
        return values
    last = rank > 2 and sum(v.only_last for v in values) * 2 > len(values)
    if last:
        return [Value(last=ops.concatenate([v.last for v in values], in_last(axis, rank)))]
    return [Value(plain=ops.concatenate([v.plain for v in values], axis))]


@reads("Split")
def _split(node: Node) -> list[Any]:
    x = node.value(0)
    axis = node.axis(node.whole("axis", 0), x.rank)
    size, count = x.shape[axis], len(node.outputs)
    if not count:
        raise node.error("it has no outputs.")
    if node.has_input(1):
        sizes = node.known_numbers(1)
    elif size is None:
        raise node.error("it divides an open axis.")
    else:
        part = -(-size // count)
        sizes = [part] * (count - 1) + [size - part * (count - 1)]
    if (
        len(sizes) != count
        or any(n < 0 for n in sizes)
        or (size is not None and sum(sizes) != size)
    ):
        raise node.error(f"parts of {sizes[:40]} do not fit {size}.")
    results, begin = [], 0
    place = in_last(axis, x.rank) if x.only_last else axis
    for n in sizes:
        index = [slice(None)] * x.rank
        index[place] = slice(begin, begin + n)
        results.append(put(x, _taken(x)[tuple(index)]))
        begin += n
    return results


@reads("Slice")
def _slice(node: Node) -> list[Any]:
    x = node.value(0)
    starts, ends = node.known_numbers(1), node.known_numbers(2)
    axes = node.known_numbers(3) if node.has_input(3) else list(range(len(starts)))
    steps = node.known_numbers(4) if node.has_input(4) else [1] * len(starts)
    axes = node.axes(axes, x.rank)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.error("its starts, ends, axes and steps do not fit one another.")
    index: list[Any] = [slice(None)] * x.rank
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = in_last(axis, x.rank) if x.only_last else axis
        size = x.shape[axis]
        begin: int | None = start if _MINUS < start < _END else None
        stop: int | None = end if _MINUS < end < _END else None
        if step < 0 and stop is not None and size is not None and stop < -size:
            stop = None
        index[place] = slice(begin, stop, step)
    return [put(x, _taken(x)[tuple(index)])]


@reads("Gather")
def _gather(node: Node) -> list[Any]:
    data, indices = node.input(0), node.input(1)
    if isinstance(data, np.ndarray) and isinstance(indices, Value):
        axis = node.axis(node.whole("axis", 0), data.ndim)
        is_table = axis == 0 and data.ndim == 2 and data.dtype.kind == "f" and 0 not in data.shape
        if is_table and node.importer.is_weight(node.inputs[0]):
            layer = layers.Embedding(*data.shape, name=node.importer.name(node.name))
            return [Value(plain=node.importer.add(node, layer, indices.plain, [data]))]
    x = node.value(0)
    axis = node.axis(node.whole("axis", 0), x.rank)
    if isinstance(indices, Value):
        return [Value(plain=ops.take(x.plain, indices.plain, axis))]
    if indices.dtype.kind not in "iu" or indices.size > folding.MOST_ELEMENTS:
        raise node.error("its places are no whole numbers, or too many.")
    size = x.shape[axis]
    if size is not None and indices.size and not -size <= indices.min() <= indices.max() < size:
        raise node.error(f"its places are outside of an axis of {size}.")
    return [Value(plain=ops.take(x.plain, indices.astype("int32"), axis))]


@reads("Expand")
def _expand(node: Node) -> list[Any]:
    given, target = node.input(0), node.numbers(1)
    rank = given.rank if isinstance(given, Value) else given.ndim
    if len(target) > 32 or rank > len(target):
        raise node.error(f"{rank} axes do not become {target[:40]}.")
    own = (1,) * (len(target) - rank) + tuple(given.shape)
    open_axes = [i for i, n in enumerate(target) if n is OPEN]
    if open_axes not in ([], [0]) or any(
        n is not OPEN and not (a == n or 1 in (a, n)) for a, n in zip(own, target, strict=True)
    ):
        raise node.error(f"it makes {own} {target}.")
    if open_axes and own[0] not in (1, None):
        raise node.error(f"it makes an open axis of {own[0]}.")
    if isinstance(given, np.ndarray):
        return [spread_over_batch(node, given.reshape(own), target)]
    if all(a == n or n == 1 or (a is None and n is OPEN) for a, n in zip(own, target, strict=True)):
        return [given if rank == len(target) else Value(plain=_widened(given.plain, len(target)))]
    x = _widened(given.plain, len(target))
    if not open_axes and None not in own:
        sizes = [max(a, n) for a, n in zip(own, target, strict=True)]
        return [Value(plain=ops.broadcast_to(x, sizes))]
    # Adding nothing of the wanted shape leaves the batch open.
    sizes = [1, *(n if a is None else max(a, n) for a, n in zip(own[1:], target[1:], strict=True))]
    folding.check_size(node, sizes)
    x = _added(x, np.zeros(sizes, given.dtype))
    if open_axes and own[0] == 1:
        x = _added(x, node.importer.nothing(node, len(target), given.dtype))
    return [Value(plain=x)]


def _added(x: Any, y: Any) -> Any:
    return ops.logical_or(x, y) if str(x.dtype) == "bool" else ops.add(x, y)


def spread_over_batch(node: Node, array: Any, target: list[Any]) -> Value:
    """A constant, the same for all samples of an open batch; a tensor of the file is a weight."""
    sizes = [1, *(max(a, n) for a, n in zip(array.shape[1:], target[1:], strict=True))]
    folding.check_size(node, sizes)
    dtype, rank = array.dtype.name, len(target)
    x = _added(node.importer.nothing(node, rank, dtype), np.zeros(sizes, dtype))
    if not array.any():
        return Value(plain=x, zero=True)
    if dtype == "float32" and array.size > 1 and node.importer.is_weight(node.inputs[0]):
        layer = Elementwise("Add", array.shape[1:], name=node.importer.name(node.name))
        return Value(plain=node.importer.add(node, layer, x, [array[0]]))
    return Value(plain=_added(x, array))


@reads("Tile")
def _tile(node: Node) -> list[Any]:
    x, repeats = node.value(0), node.known_numbers(1)
    if len(repeats) != x.rank or any(not 0 < n < 1 << 24 for n in repeats):
        raise node.error(f"repeats={repeats[:40]} do not fit {x.rank} axes.")
    return [Value(plain=ops.tile(x.plain, repeats))]


@reads("Pad")
def _pad(node: Node) -> list[Any]:
    x = node.value(0)
    numbers = node.known_numbers(1)
    axes = node.axes(node.known_numbers(3), x.rank) if node.has_input(3) else list(range(x.rank))
    if len(numbers) != 2 * len(axes) or any(abs(n) > 1 << 24 for n in numbers):
        raise node.error(f"pads={numbers[:40]} do not fit {len(axes)} axes.")
    if any(n < 0 for n in numbers):
        raise node.error("it cuts off (a negative pad); use Slice.")
    modes = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    mode = node.text("mode", "constant")
    if mode not in modes:
        raise node.error(f"mode={mode!r} is not known.")
    value = 0.0
    if node.has_input(2):
        array = node.constant(2)
        if array.size != 1 or array.dtype.kind not in "biuf":
            raise node.error("its value is no number.")
        value = array.reshape(()).item()
    widths = [(0, 0)] * x.rank
    for axis, before, after in zip(axes, numbers, numbers[len(axes) :], strict=False):
        widths[in_last(axis, x.rank) if x.only_last else axis] = (before, after)
    options = {"constant_values": value} if mode == "constant" else {}
    return [put(x, ops.pad(_taken(x), widths, mode=modes[mode], **options))]


# Reductions ---------------------------------------------------------------------------------------

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceMean": ops.mean,
    "ReduceSum": ops.sum,
    "ReduceMax": ops.max,
    "ReduceMin": ops.min,
    "ReduceProd": ops.prod,
    "ReduceLogSumExp": ops.logsumexp,
    "ReduceL2": lambda x, axis, keepdims: ops.sqrt(ops.sum(ops.square(x), axis, keepdims=keepdims)),
    "ReduceL1": lambda x, axis, keepdims: ops.sum(ops.abs(x), axis, keepdims=keepdims),
    "ReduceSumSquare": lambda x, axis, keepdims: ops.sum(ops.square(x), axis, keepdims=keepdims),
}


@reads(*_REDUCTIONS)
def _reduce(node: Node) -> list[Any]:
    x = node.value(0)
    axes = _listed_axes(node, 1)
    if not axes:
        if node.whole("noop_with_empty_axes", 0):
            return [x]
        axes = list(range(x.rank))
    axes, keepdims = sorted(node.axes(axes, x.rank)), bool(node.whole("keepdims", 1))
    reduce = _REDUCTIONS[node.op]
    if not x.only_last:
        return [Value(plain=reduce(x.plain, axis=axes, keepdims=keepdims))]
    moved = [in_last(axis, x.rank) for axis in axes]
    result = reduce(x.last, axis=moved, keepdims=keepdims)
    kept = [axis for axis in range(x.rank) if axis not in axes]
    if keepdims or (len(kept) > 2 and kept[:2] == [0, 1]):
        return [Value(last=result)]
    if kept in ([0, 1], [0], [1], []) or 1 not in kept:
        return [Value(plain=result)]
    return [Value(plain=reduce(x.plain, axis=axes, keepdims=keepdims))]


@reads("ArgMax", "ArgMin")
def _arg(node: Node) -> list[Any]:
    x = node.value(0)
    node.only(select_last_index=0)
    axis = node.axis(node.whole("axis", 0), x.rank)
    find = ops.argmax if node.op == "ArgMax" else ops.argmin
    found = find(x.plain, axis=axis, keepdims=bool(node.whole("keepdims", 1)))
    return [Value(plain=ops.cast(found, "int64"))]


@reads("Softmax", "LogSoftmax")
def _softmax(node: Node) -> list[Any]:
    x = node.value(0)
    axis = node.axis(node.whole("axis", -1), x.rank)
    axis = in_last(axis, x.rank) if x.only_last else axis
    apply = ops.softmax if node.op == "Softmax" else ops.log_softmax
    return [put(x, apply(_taken(x), axis=axis))]

"""Readers of ONNX's ops that have weights, or windows: they become layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kerascnn import layers, ops
from kerascnn.onnx_files import folding
from kerascnn.onnx_files.importer import Node, Value
from kerascnn.onnx_files.layers import Elementwise

Reader = Callable[[Node], list[Any]]
READERS: dict[str, Reader] = {}


def reads(*names: str) -> Callable[[Reader], Reader]:
    """Registers the reader of these ops; it returns a value or an array for each output."""

    def register(function: Reader) -> Reader:
        for name in names:
            READERS[name] = function
        return function

    return register


def _spatial(node: Node, x: Value) -> int:
    if not 3 <= x.rank <= 5:
        raise node.error(f"it takes (batch, channels, 1 to 3 axes), and gets {x.rank} axes.")
    return x.rank - 2


def _per_axis(node: Node, name: str, count: int, default: int = 1, least: int = 1) -> list[int]:
    numbers = node.ints(name, [default] * count)
    if len(numbers) != count or any(n < least or n > 1 << 24 for n in numbers):
        raise node.error(f"{name}={numbers[:40]} does not fit {count} axes.")
    return numbers


def _pads(
    node: Node, x: Value, window: list[int], strides: list[int], dilations: list[int]
) -> list[tuple[int, int]]:
    """Padding before and behind each axis."""
    rank = len(window)
    kind = node.text("auto_pad", "NOTSET")
    if kind == "VALID":
        return [(0, 0)] * rank
    if kind in ("SAME_UPPER", "SAME_LOWER"):
        pads = []
        for size, w, s, d in zip(x.shape[2:], window, strides, dilations, strict=True):
            if size is None and s != 1:
                raise node.error(f"auto_pad={kind} on an open axis needs a stride of 1.")
            count = 0 if size is None else (-(-size // s) - 1) * s
            total = max(count + d * (w - 1) + 1 - (size or 0), 0) if size else d * (w - 1)
            small, large = total // 2, total - total // 2
            pads.append((small, large) if kind == "SAME_UPPER" else (large, small))
        return pads
    if kind != "NOTSET":
        raise node.error(f"auto_pad={kind!r} is not known.")
    numbers = _per_axis(node, "pads", 2 * rank, 0, 0)
    return list(zip(numbers[:rank], numbers[rank:], strict=True))


def _padded(node: Node, x: Any, pads: list[tuple[int, int]], value: float = 0.0) -> Any:
    """Pads channels-last values."""
    if not any(map(any, pads)):
        return x
    if value == 0.0:
        kind = {1: layers.ZeroPadding1D, 2: layers.ZeroPadding2D, 3: layers.ZeroPadding3D}
        amount = pads[0] if len(pads) == 1 else tuple(pads)
        return kind[len(pads)](amount, name=node.importer.name(f"{node.name}_pad"))(x)
    return ops.pad(x, [(0, 0), *pads, (0, 0)], constant_values=value)


@reads("Conv")
def _conv(node: Node) -> list[Any]:
    x, kernel = node.value(0), node.constant(1)
    rank = _spatial(node, x)
    channels, groups = x.shape[1], node.whole("group", 1)
    if (
        kernel.ndim != rank + 2
        or groups < 1
        or kernel.shape[1] * groups != channels
        or 0 in kernel.shape
    ):
        raise node.error(
            f"a kernel of shape {kernel.shape} in {groups} groups does not fit {channels} channels "
            f"and {rank} axes."
        )
    window = list(kernel.shape[2:])
    if node.ints("kernel_shape", window) != window:
        raise node.error(f"kernel_shape={node.ints('kernel_shape')} is not that of its kernel.")
    strides, dilations = _per_axis(node, "strides", rank), _per_axis(node, "dilations", rank)
    pads = _pads(node, x, window, strides, dilations)
    same = [
        (d * (w - 1) // 2, d * (w - 1) - d * (w - 1) // 2)
        for w, d in zip(window, dilations, strict=True)
    ]
    padding, inputs = "valid", x.last
    if pads == same and all(s == 1 for s in strides):
        padding = "same"
    else:
        inputs = _padded(node, inputs, pads)
    weights = [kernel.transpose([*range(2, rank + 2), 1, 0])]
    if node.has_input(2):
        weights.append(node.constant(2))
    kind = {1: layers.Conv1D, 2: layers.Conv2D, 3: layers.Conv3D}[rank]
    layer = kind(
        kernel.shape[0],
        window,
        strides=strides,
        dilation_rate=dilations,
        groups=groups,
        padding=padding,
        use_bias=len(weights) == 2,
        data_format="channels_last",
        name=node.importer.name(node.name),
    )
    return [Value(last=node.importer.add(node, layer, inputs, weights))]


@reads("ConvTranspose")
def _conv_transpose(node: Node) -> list[Any]:
    x, kernel = node.value(0), node.constant(1)
    rank = _spatial(node, x)
    node.only(group=1, auto_pad="NOTSET")
    if node.has("output_shape"):
        raise node.error("output_shape is not known; use pads and output_padding.")
    if kernel.ndim != rank + 2 or kernel.shape[0] != x.shape[1] or 0 in kernel.shape:
        raise node.error(f"a kernel of shape {kernel.shape} does not fit {x.shape[1]} channels.")
    window = list(kernel.shape[2:])
    strides, dilations = _per_axis(node, "strides", rank), _per_axis(node, "dilations", rank)
    pads = list(
        zip(*np.reshape(_per_axis(node, "pads", 2 * rank, 0, 0), (2, rank)).tolist(), strict=True)
    )
    extra = _per_axis(node, "output_padding", rank, 0, 0)
    if any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        raise node.error(f"output_padding={extra} is not smaller than strides and dilations.")
    weights = [kernel.transpose([*range(2, rank + 2), 1, 0])]
    if node.has_input(2):
        weights.append(node.constant(2))
    # The layer gives all of the output, with its output padding; what is padded away is cropped.
    kind = {1: layers.Conv1DTranspose, 2: layers.Conv2DTranspose, 3: layers.Conv3DTranspose}[rank]
    layer = kind(
        kernel.shape[1],
        window,
        strides=strides,
        dilation_rate=dilations,
        output_padding=extra,
        padding="valid",
        use_bias=len(weights) == 2,
        data_format="channels_last",
        name=node.importer.name(node.name),
    )
    y = node.importer.add(node, layer, x.last, weights)
    if any(map(any, pads)):
        crop = {1: layers.Cropping1D, 2: layers.Cropping2D, 3: layers.Cropping3D}[rank]
        amounts = pads[0] if rank == 1 else tuple(pads)
        y = crop(amounts, name=node.importer.name(f"{node.name}_crop"))(y)
    return [Value(last=y)]


@reads("MaxPool", "AveragePool")
def _pool(node: Node) -> list[Any]:
    x = node.value(0)
    rank = _spatial(node, x)
    if len(node.outputs) > 1 and node.importer.users.get(node.outputs[1]):
        raise node.error("the places of the largest elements are not known.")
    window = _per_axis(node, "kernel_shape", rank)
    strides = _per_axis(node, "strides", rank)
    if any(d != 1 for d in _per_axis(node, "dilations", rank)):
        raise node.error("dilations are not known.")
    pads = _pads(node, x, window, strides, [1] * rank)
    if any(max(pair) >= w for pair, w in zip(pads, window, strict=True)):
        raise node.error(f"its padding {pads} is not smaller than its window {window}.")
    counted = pads
    if node.whole("ceil_mode", 0):
        pads = _rounded_up(node, x, window, strides, pads)
    name = node.importer.name(node.name)
    options: Any = {"strides": strides, "data_format": "channels_last", "name": name}
    if node.op == "MaxPool":
        kind = {1: layers.MaxPooling1D, 2: layers.MaxPooling2D, 3: layers.MaxPooling3D}[rank]
        # Padding must not win: it is less than every number.
        inputs = _padded(node, x.last, pads, -math.inf)
        return [Value(last=kind(window, **options)(inputs))]
    means = {1: layers.AveragePooling1D, 2: layers.AveragePooling2D, 3: layers.AveragePooling3D}
    y = means[rank](window, **options)(_padded(node, x.last, pads))
    inside = [(0, 0)] * rank if not node.whole("count_include_pad", 0) else counted
    if inside == pads:
        return [Value(last=y)]
    return [Value(last=ops.multiply(y, _shares(node, x, window, strides, pads, inside)))]


def _rounded_up(
    node: Node, x: Value, window: list[int], strides: list[int], pads: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Padding with which the last window is taken that begins inside."""
    found = []
    for size, w, s, (before, after) in zip(x.shape[2:], window, strides, pads, strict=True):
        if size is None:
            raise node.error("ceil_mode=1 on an open axis is not known.")
        count = -(-(size + before + after - w) // s) + 1
        if (count - 1) * s >= size + before:
            count -= 1
        found.append((before, max(after, (count - 1) * s + w - size - before)))
    return found


def _shares(
    node: Node,
    x: Value,
    window: list[int],
    strides: list[int],
    pads: list[tuple[int, int]],
    counted: list[tuple[int, int]],
) -> Any:
    """By what means over whole windows are multiplied to be means over what counts."""
    factors: Any = np.ones((1,) * (len(window) + 2), "float32")
    axes = zip(x.shape[2:], window, strides, pads, counted, strict=True)
    for axis, (size, w, s, (before, after), (first, last)) in enumerate(axes):
        if size is None:
            raise node.error("means that leave out padding need the size of the axis.")
        count = (size + before + after - w) // s + 1
        if count < 1 or count > 1 << 20:
            raise node.error(f"a window of {w} does not fit {size}.")
        begins = np.arange(count) * s - before
        inside = np.minimum(begins + w, size + last) - np.maximum(begins, -first)
        shape = [1] * factors.ndim
        shape[axis + 1] = count
        folding.check_size(node, (factors.size, count))
        factors = factors * (w / np.maximum(inside, 1)).astype("float32").reshape(shape)
    return factors


@reads("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(node: Node) -> list[Any]:
    x = node.value(0)
    rank = _spatial(node, x)
    kind = "Average" if node.op == "GlobalAveragePool" else "Max"
    layer = getattr(layers, f"Global{kind}Pooling{rank}D")(
        keepdims=True, data_format="channels_last", name=node.importer.name(node.name)
    )
    return [Value(last=layer(x.last))]


@reads("BatchNormalization")
def _batch_norm(node: Node) -> list[Any]:
    x = node.value(0)
    node.only(training_mode=0)
    weights = [node.constant(i) for i in (1, 2, 3, 4)]
    if x.rank < 2 or any(w.shape != (x.shape[1],) for w in weights):
        raise node.error(f"its weights do not fit {x.shape[1:2]} channels.")
    layer = layers.BatchNormalization(
        momentum=node.real("momentum", 0.9),
        epsilon=node.real("epsilon", 1e-5),
        name=node.importer.name(node.name),
    )
    if x.rank == 2:
        return [Value(plain=node.importer.add(node, layer, x.plain, weights))]
    return [Value(last=node.importer.add(node, layer, x.last, weights))]


@reads("LayerNormalization")
def _layer_norm(node: Node) -> list[Any]:
    x, scale = node.value(0), node.constant(1)
    axis = node.axis(node.whole("axis", -1), x.rank)
    if any(node.importer.users.get(name) for name in node.outputs[1:]):
        raise node.error("its statistics are not known, only its result.")
    weights = [scale]
    if node.has_input(2):
        weights.append(node.constant(2))
    if any(w.shape != tuple(x.shape[axis:]) for w in weights):
        raise node.error(f"its weights do not fit the axes {x.shape[axis:]}.")
    layer = layers.LayerNormalization(
        axis=list(range(axis, x.rank)),
        epsilon=node.real("epsilon", 1e-5),
        center=len(weights) == 2,
        name=node.importer.name(node.name),
    )
    return [Value(plain=node.importer.add(node, layer, x.plain, weights))]


def _dense(node: Node, x: Any, kernel: Any, bias: Any = None) -> Any:
    layer = layers.Dense(
        kernel.shape[1], use_bias=bias is not None, name=node.importer.name(node.name)
    )
    weights = [kernel] if bias is None else [kernel, bias]
    return node.importer.add(node, layer, x, weights)


@reads("Gemm")
def _gemm(node: Node) -> list[Any]:
    x = node.value(0)
    if x.rank != 2:
        raise node.error(f"its first input has {x.rank} axes, not 2.")
    transposed = bool(node.whole("transA", 0))
    alpha, beta = node.real("alpha", 1.0), node.real("beta", 1.0)
    b = node.input(1)
    if isinstance(b, Value):
        plain = ops.transpose(x.plain) if transposed else x.plain
        y = ops.matmul(plain, ops.transpose(b.plain) if node.whole("transB", 0) else b.plain)
        y = y if alpha == 1.0 else ops.multiply(y, alpha)
        if node.has_input(2):
            addend = node.value(2).plain
            y = ops.add(y, addend if beta == 1.0 else ops.multiply(addend, beta))
        return [Value(plain=y)]
    kernel = b.T if node.whole("transB", 0) else b
    # A dense layer takes all rows of a tensor of more axes as they are.
    in_rows = x.rows is not None and not transposed
    plain = x.rows if in_rows else ops.transpose(x.plain) if transposed else x.plain
    if kernel.ndim != 2 or kernel.shape[0] != plain.shape[-1] or kernel.shape[1] < 1:
        raise node.error(f"a matrix of shape {kernel.shape} does not fit {plain.shape}.")
    kernel = kernel if alpha == 1.0 else kernel * kernel.dtype.type(alpha)
    bias = node.input(2) if node.has_input(2) else None
    if isinstance(bias, np.ndarray) and bias.size == kernel.shape[1] and bias.dtype == kernel.dtype:
        scaled = bias.reshape(-1) if beta == 1.0 else bias.reshape(-1) * bias.dtype.type(beta)
        y = _dense(node, plain, kernel, scaled)
        return [Value(rows=y) if in_rows else Value(plain=y)]
    if bias is None:
        y = _dense(node, plain, kernel)
        return [Value(rows=y) if in_rows else Value(plain=y)]
    y = _dense(node, ops.transpose(x.plain) if transposed else x.plain, kernel)
    if bias is not None:
        addend = node.value(2).plain
        y = ops.add(y, addend if beta == 1.0 else ops.multiply(addend, beta))
    return [Value(plain=y)]


@reads("MatMul")
def _matmul(node: Node) -> list[Any]:
    a, b = node.input(0), node.input(1)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        raise node.error("a product of constants is not computed.")
    fits = isinstance(b, np.ndarray) and b.ndim == 2 and 0 not in b.shape and b.dtype.kind == "f"
    if fits and isinstance(a, Value) and a.rank >= 2 and a.shape[-1] == b.shape[0]:
        return [Value(plain=_dense(node, a.plain, b))]
    return [Value(plain=ops.matmul(node.value(0).plain, node.value(1).plain))]


@reads("PRelu")
def _prelu(node: Node) -> list[Any]:
    x, slope = node.value(0), node.constant(1)
    if x.rank < 2 or slope.size != x.shape[1] or (slope.ndim and max(slope.shape) != slope.size):
        raise node.error(f"a slope of shape {slope.shape} does not fit {x.shape}.")
    layer = layers.PReLU(
        shared_axes=list(range(1, x.rank - 1)) or None, name=node.importer.name(node.name)
    )
    values = slope.reshape((*[1] * (x.rank - 2), slope.size))
    return [Value(last=node.importer.add(node, layer, x.last, [values]))]


@reads("Dropout")
def _dropout(node: Node) -> list[Any]:
    x = node.value(0)
    if len(node.outputs) > 1 and node.importer.users.get(node.outputs[1]):
        raise node.error("its mask is not known.")
    rate = 0.5
    if node.has_input(1):
        array = node.constant(1)
        if array.size != 1 or array.dtype.kind != "f":
            raise node.error("its ratio is no number.")
        rate = float(array.reshape(()))
    if not 0.0 <= rate < 1.0:
        raise node.error(f"its ratio {rate} is not from 0 to less than 1.")
    layer = layers.Dropout(rate, name=node.importer.name(node.name))
    return [Value(last=layer(x.last)) if x.only_last else Value(plain=layer(x.plain))]


def with_weight(node: Node, x: Value, weight: Any, weight_first: bool) -> Value | None:
    """Arithmetic with a tensor of the file as a layer; None where the layer can't have it."""
    if weight.dtype.name != x.dtype or weight.ndim > x.rank or weight.size < 2:
        return None
    wide = weight.reshape((1,) * (x.rank - weight.ndim) + weight.shape)
    if any(a not in (1, b) for a, b in zip(wide.shape, x.shape, strict=True)):
        return None
    if x.only_last:
        order = [0, *range(2, x.rank), 1]
        wide = wide.transpose(order)
    while wide.ndim > 1 and wide.shape[0] == 1:
        wide = wide[0]
    layer = Elementwise(node.op, wide.shape, weight_first, name=node.importer.name(node.name))
    inputs = x.last if x.only_last else x.plain
    y = node.importer.add(node, layer, inputs, [wide])
    return Value(last=y) if x.only_last else Value(plain=y)

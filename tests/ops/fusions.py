"""Traces the nodes that each fusion takes, and compiles programs of them."""

from __future__ import annotations

import numpy as np

from kerascnn import _core

from . import harness
from .case import Array, Attributes
from .reference import ELEMENT_PARAMETERS


class Nodes:
    """Ops of a graph as methods that return their first result."""

    def __init__(self, graph: _core.Graph) -> None:
        self.graph = graph

    def all(self, op, *values, **attributes):
        return self.graph.apply(op, list(values), attributes)

    def __getattr__(self, op):
        return lambda *values, **attributes: self.all(op, *values, **attributes)[0]


def _undo_activation(t, g, y, activation, alpha):
    if activation == "linear":
        return g
    names = ELEMENT_PARAMETERS.get(f"{activation}_grad", [])
    return t.all(f"{activation}_grad", g, y, **dict.fromkeys(names, alpha))[0]


def count_matches(t, arrays, scores, labels):
    """Traces the nodes as accuracy metrics do."""
    place = t.argmax(scores, axis=1)
    if arrays[1].dtype != np.int32:
        place = t.cast(place, dtype=arrays[1].dtype.name)
    matches = t.cast(t.equal(labels, place), dtype="float32")
    return [t.reduce_sum(matches, axes=[0], keepdims=False)]


def matmul_activation_grad(
    t, arrays, a, b, y, *, transpose_a, transpose_b, activation, activation_alpha
):
    product = t.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    return [_undo_activation(t, product, y, activation, activation_alpha)]


def dense_wgrad(t, arrays, x, g):
    kernel = t.matmul(x, g, transpose_a=True, transpose_b=False)
    return [kernel, t.reduce_sum(g, axes=[0], keepdims=False)]


def dense_loss(t, arrays, x, kernel, *inputs, epsilon):
    *bias, labels, gy = inputs
    logits = t.dense(x, kernel, *bias, activation="linear", activation_alpha=0.0)
    loss, p = t.all("sparse_softmax_cross_entropy", logits, labels, epsilon=epsilon)
    return [loss, p, t.sparse_softmax_cross_entropy_grad(gy, p, labels, epsilon=epsilon)]


def dense_loss_dgrad(
    t, arrays, x, kernel, *inputs, epsilon, activation, activation_alpha, rate=None, stream=0
):
    def drop(value):
        return t.dropout(value, inputs[-1], rate=rate, stream=stream) if rate is not None else value

    given = drop(x)
    others = inputs if rate is None else inputs[:-1]
    outputs = dense_loss(t, arrays, given, kernel, *others, epsilon=epsilon)
    g = drop(t.matmul(outputs[2], kernel, transpose_a=False, transpose_b=True))
    outputs.append(_undo_activation(t, g, x, activation, activation_alpha))
    return outputs if rate is None else [*outputs, given]


_WINDOW = ("strides", "padding", "dilations", "groups")


def _pooling(attributes):
    return {
        "window": attributes["window"],
        "strides": attributes["pool_strides"],
        "padding": attributes["pool_padding"],
    }


def conv2d_max_pool2d(t, arrays, x, kernel, *bias, activation, activation_alpha, **attributes):
    window = {name: attributes[name] for name in _WINDOW}
    wide = t.conv2d(
        x, kernel, *bias, activation=activation, activation_alpha=activation_alpha, **window
    )
    return t.all("max_pool2d", wide, **_pooling(attributes))


def _spread(t, gy, y, index, images, kernel, attributes):
    """Returns the gradient before the activation, and the same at the convolution's full size."""
    narrow = _undo_activation(t, gy, y, attributes["activation"], attributes["activation_alpha"])
    pads = attributes["padding"]
    steps = zip(attributes["strides"], attributes["dilations"], strict=True)
    size = [
        (images[1 + i] + pads[2 * i] + pads[2 * i + 1] - (kernel[i] - 1) * dilation - 1) // stride
        + 1
        for i, (stride, dilation) in enumerate(steps)
    ]
    shape = [images[0], *size, kernel[3]]
    return narrow, t.max_pool2d_grad(narrow, index, input_shape=shape, **_pooling(attributes))


def conv2d_max_pool2d_dgrad(t, arrays, gy, y, index, kernel, *, input_shape, **attributes):
    _, wide = _spread(t, gy, y, index, input_shape, arrays[3].shape, attributes)
    window = {name: attributes[name] for name in _WINDOW}
    return [t.conv2d_dgrad(wide, kernel, input_shape=input_shape, **window)]


def conv2d_max_pool2d_wgrad(t, arrays, x, gy, y, index, *, kernel_shape, **attributes):
    narrow, wide = _spread(t, gy, y, index, arrays[0].shape, kernel_shape, attributes)
    window = {name: attributes[name] for name in _WINDOW}
    kernel = t.conv2d_wgrad(x, wide, kernel_shape=kernel_shape, **window)
    return [kernel, t.reduce_sum(narrow, axes=[0, 1, 2], keepdims=False)]


def conv2d_wgrad(t, arrays, x, gy, **attributes):
    return [t.conv2d_wgrad(x, gy, **attributes)]


def conv2d_add(t, arrays, x, kernel, bias, shortcut, *, relu, **attributes):
    y = t.conv2d(x, kernel, bias, activation="linear", activation_alpha=0.0, **attributes)
    y = t.add(y, shortcut)
    return [t.relu(y) if relu else y]


def conv2d_moments(t, arrays, x, kernel, *bias, **attributes):
    y = t.conv2d(x, kernel, *bias, activation="linear", activation_alpha=0.0, **attributes)
    mean, variance = t.all("column_moments", t.cast(y, dtype="float32"), outer_axes=0)
    return [y, mean, variance]


def batch_norm_16_bits(t, arrays, x, gamma, beta, *, epsilon):
    wide = t.cast(x, dtype="float32")
    y, *statistics = t.all("batch_norm", wide, gamma, beta, epsilon=epsilon)
    return [t.cast(y, dtype=arrays[0].dtype.name), *statistics]


def batch_norm_grad_16_bits(t, arrays, gy, x, *inputs):
    wide = (t.cast(value, dtype="float32") for value in (gy, x))
    gx, *sums = t.all("batch_norm_grad", *wide, *inputs)
    return [t.cast(gx, dtype=arrays[0].dtype.name), *sums]


def take_batches(t, arrays, *inputs, batch_size):
    *data, order, step = inputs
    return [t.take_batch(each, order, step, batch_size=batch_size) for each in data]


def attention(t, arrays, q, k, v, *added, scale, is_causal, one_batch, heads_behind):
    """Traces the products as layers (`one_batch`) or ops.dot_product_attention write them."""
    order = [0, 2, 1, 3]
    shape = arrays[0].shape
    batch, heads = shape[0], shape[2 if heads_behind else 1]

    def scaled(x):
        return x if scale is None else t.multiply(x, t.graph.full([], x.dtype, scale))

    def turned(x):
        return t.transpose(x, permutation=order) if heads_behind else x

    def joined(x):
        return t.reshape(x, shape=[batch * heads, *x.shape[2:]]) if one_batch else x

    def product(a, b):
        y = t.matmul(joined(a), joined(b), transpose_a=False, transpose_b=False)
        return t.reshape(y, shape=[batch, heads, *y.shape[1:]]) if one_batch else y

    queries = turned(scaled(q)) if one_batch else scaled(turned(q))
    keys = t.transpose(k, permutation=[0, 2, 3, 1] if heads_behind else [0, 1, 3, 2])
    logits = product(queries, keys)
    if is_causal:
        sees = np.tri(*logits.shape[2:], dtype=bool)
        added = (*added, t.graph.constant(_core.from_numpy(sees, "cpu")))
    for each in added:  # a bias, or a mask
        if each.dtype == "bool":
            logits = t.where(each, logits, t.graph.full([], logits.dtype, -4e4))
        else:
            logits = t.add(logits, each)
    return [turned(product(t.softmax(logits, axis=3), turned(v)))]


def attention_grad(t, arrays, q, k, v, gy, *added, **attributes):
    (y,) = attention(t, arrays, q, k, v, *added, **attributes)
    axes = list(range(len(y.shape)))
    wide = [t.cast(x, dtype="float32") for x in (y, gy)]
    loss = t.reduce_sum(t.multiply(*wide), axes=axes, keepdims=False)
    return [y, *t.graph.gradients(loss, [q, k, v])]


def group_statistics(t, x, *, groups, epsilon):
    """Returns x in float32, and the means and inverse deviations of groups of its last axis."""
    in_groups = [x.shape[0], groups, x.shape[-1] // groups]
    wide = x if x.dtype == "float32" else t.cast(x, dtype="float32")
    moments = t.all("column_moments", wide, outer_axes=1)
    mean, variance = (t.reshape(moment, shape=in_groups) for moment in moments)
    if in_groups[2] > 1:
        means = mean
        mean = t.reduce_mean(means, axes=[2], keepdims=True)
        apart = t.square(t.subtract(means, mean))
        variance = t.reduce_mean(t.add(variance, apart), axes=[2], keepdims=True)
    return wide, mean, t.rsqrt(t.add(variance, t.graph.full([], "float32", epsilon)))


def group_norm(t, arrays, x, gamma, beta, *, groups, epsilon, activation):
    """Traces the nodes as GroupNormalization does, and an activation after it."""
    wide, mean, inverse = group_statistics(t, x, groups=groups, epsilon=epsilon)
    in_groups = [x.shape[0], groups, x.shape[-1] // groups]
    weights = [1, *in_groups[1:]]
    scale = t.multiply(inverse, t.reshape(gamma, shape=weights))
    origin = t.stop_gradient(t.broadcast_to(mean, shape=in_groups))
    shift = t.multiply(t.subtract(origin, mean), scale)
    shift = t.add(shift, t.reshape(beta, shape=weights))
    beside = [x.shape[0], *[1] * (len(x.shape) - 2), x.shape[-1]]
    origin, scale, shift = (t.reshape(each, shape=beside) for each in (origin, scale, shift))
    y = t.add(t.multiply(t.subtract(wide, origin), scale), shift)
    if x.dtype != "float32":
        y = t.cast(y, dtype=x.dtype)
    if activation:
        y = t.all(activation, y, **({"approximate": False} if activation == "gelu" else {}))[0]
    return [y]


def group_norm_grad(t, arrays, x, gamma, beta, gy, **attributes):
    (y,) = group_norm(t, arrays, x, gamma, beta, **attributes)
    axes = list(range(len(y.shape)))
    loss = t.reduce_sum(t.multiply(y, gy), axes=axes, keepdims=False)
    return [y, *t.graph.gradients(loss, [x, gamma, beta])]


# Each function takes (nodes, the arrays, values of the inputs, attributes) and returns the values
# of the outputs.
TRACE = {
    "attention": attention,
    "attention_grad": attention_grad,
    "batch_norm_16_bits": batch_norm_16_bits,
    "batch_norm_grad_16_bits": batch_norm_grad_16_bits,
    "conv2d_add": conv2d_add,
    "conv2d_moments": conv2d_moments,
    "conv2d_max_pool2d": conv2d_max_pool2d,
    "conv2d_max_pool2d_dgrad": conv2d_max_pool2d_dgrad,
    "conv2d_max_pool2d_wgrad": conv2d_max_pool2d_wgrad,
    "conv2d_wgrad": conv2d_wgrad,
    "take_batches": take_batches,
    "count_matches": count_matches,
    "matmul_activation_grad": matmul_activation_grad,
    "dense_wgrad": dense_wgrad,
    "group_norm": group_norm,
    "group_norm_grad": group_norm_grad,
    "dense_sparse_softmax_cross_entropy": dense_loss,
    "dense_sparse_softmax_cross_entropy_dgrad": dense_loss_dgrad,
}


def compile_nodes(
    fusion: str,
    arrays: list[Array],
    attributes: Attributes,
    device: str,
    *,
    optimize: bool,
    num_outputs: int | None = None,
    allow_tf32: bool = True,
) -> _core.Program:
    """Compiles a program of the nodes that gives their first `num_outputs` results, by default all.

    With `optimize` it has the device's kernel for them, if there is one.
    """
    graph = _core.Graph()
    values = [graph.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)]
    outputs = TRACE[fusion](Nodes(graph), arrays, *values, **attributes)
    outputs = outputs[:num_outputs]
    return _core.Program.compile(graph, outputs, device, optimize=optimize, allow_tf32=allow_tf32)


def run(program: _core.Program, arrays: list[Array], device: str) -> list[Array]:
    program.run(harness.to_device(arrays, device))
    return [np.array(y.numpy()) for y in program.outputs()]


def call(
    fusion: str, arrays: list[Array], attributes: Attributes, device: str, allow_tf32: bool = True
) -> list[Array]:
    """Returns the nodes' results, computed by the device's kernel for them if there is one."""
    program = compile_nodes(
        fusion, arrays, attributes, device, optimize=True, allow_tf32=allow_tf32
    )
    return run(program, arrays, device)


def is_fused(program: _core.Program, fusion: str) -> bool:
    return any(row["attributes"].get("fusion") == fusion for row in program.describe())

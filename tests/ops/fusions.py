"""The nodes that each fusion is for, traced from its inputs, and programs of them."""

from __future__ import annotations

import numpy as np

from kerascnn import _core

from . import harness
from .case import Array, Attributes
from .reference import ELEMENT_PARAMETERS


class _Nodes:
    """Ops of a graph as methods that give their first result."""

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
    """As accuracy metrics trace it."""
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


# By fusion: (nodes, the arrays, values of the inputs, attributes) -> values of the outputs.
TRACE = {
    "count_matches": count_matches,
    "matmul_activation_grad": matmul_activation_grad,
    "dense_wgrad": dense_wgrad,
    "dense_sparse_softmax_cross_entropy": dense_loss,
    "dense_sparse_softmax_cross_entropy_dgrad": dense_loss_dgrad,
}


def compile_nodes(
    fusion: str, arrays: list[Array], attributes: Attributes, device: str, *, optimize: bool
) -> _core.Program:
    """A program of the nodes; where `optimize`, with the device's kernel for them if it has one."""
    graph = _core.Graph()
    values = [graph.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)]
    outputs = TRACE[fusion](_Nodes(graph), arrays, *values, **attributes)
    return _core.Program.compile(graph, outputs, device, optimize=optimize, allow_tf32=True)


def run(program: _core.Program, arrays: list[Array], device: str) -> list[Array]:
    program.run(harness.to_device(arrays, device))
    return [np.array(y.numpy()) for y in program.outputs()]


def call(fusion: str, arrays: list[Array], attributes: Attributes, device: str) -> list[Array]:
    """What the nodes give, by the device's kernel for them if it has one."""
    program = compile_nodes(fusion, arrays, attributes, device, optimize=True)
    return run(program, arrays, device)


def is_fused(program: _core.Program, fusion: str) -> bool:
    return any(row["label"].split(" (")[0] == fusion for row in program.describe())

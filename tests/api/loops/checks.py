"""Helpers of the tests of loops and choices, which compare a node with code run at once."""

import numpy as np

import kerascnn as keras
from kerascnn import _core, ops, trees
from kerascnn.tracing import Trace

# The dtype is float64. A step has about ten roundings, and a test has about ten steps and sums of
# some hundred terms.
CLOSE = {"rtol": 1e-10, "atol": 1e-11}


def close(actual, expected, **tolerance):
    actual, expected = trees.flatten(actual), trees.flatten(expected)
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert (a is None) == (b is None)
        if a is None:
            continue
        a, b = ops.convert_to_numpy(a), ops.convert_to_numpy(b)
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a.astype("float64"), b.astype("float64"), **(tolerance or CLOSE))


def tensors(*arrays):
    return [ops.convert_to_tensor(a) for a in arrays]


def gradients(function, order=1):
    """Returns a function of the loss and its gradients; order 2 differentiates these again."""

    def call(*inputs):
        inputs = list(inputs)
        if order == 1:
            with keras.GradientTape() as tape:
                tape.watch(inputs)
                loss = function(*inputs)
            return loss, tape.gradient(loss, inputs, unconnected_gradients="zero")
        with keras.GradientTape() as tape:
            tape.watch(inputs)
            loss, found = gradients(function, order - 1)(*inputs)
            total = sum(ops.sum(ops.square(g)) for g in found)
        return loss, tape.gradient(total, inputs, unconnected_gradients="zero")

    return call


def check(function, *arrays, orders=(1, 2), device="cpu"):
    """Compares the node with the same code run at once: results, and gradients of these orders."""
    with keras.device(device):
        inputs = tensors(*arrays)
        close(keras.jit(function)(*inputs), function(*inputs))
        for order in orders:
            wanted = gradients(function, order)(*inputs)
            close(keras.jit(gradients(function, order))(*inputs), wanted)


def traced(function, *arrays, device="cpu", optimize=True):
    """Compiles the program of a function of these arrays."""
    with Trace(device) as trace:
        values = [trace.graph.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)]
        results = [ops.convert_to_tensor(r) for r in trees.flatten(function(*values))]
    return _core.Program.compile(trace.graph, results, device, optimize=optimize)


def recurrent(reverse=False, **options):
    def loss(w, x, h):
        def step(h, row):
            h = ops.tanh(h @ w + row)
            return h, ops.sin(2.0 * h)

        last, rows = ops.scan(step, h, x, reverse=reverse, **options)
        weights = ops.cast(ops.arange(1, rows.shape[0] + 1), rows.dtype)
        return ops.sum(last * last) + ops.sum(rows * ops.reshape(weights, (-1, 1, 1)))

    return loss

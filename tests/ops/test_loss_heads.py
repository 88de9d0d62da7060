"""A classifier's last layer has right losses and gradients at sizes where kernels change."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kerascnn import _core

from . import harness
from .fusions import call
from .reference import activate
from .reference_losses import dense_sparse_softmax_cross_entropy_dgrad as loss_head

HEAD = "dense_sparse_softmax_cross_entropy_dgrad"
# Features lie around what a thread, a warp, a block and a cluster take. A block takes one row or
# four. Some numbers of classes have compiled kernels, and some are smaller. Then come the sizes of
# small networks.
SIZES = [
    *itertools.product([1, 7, 64], [1, 6, 128, 132, 513], [2, 10, 16, 31]),
    *((64, 3136, 10), (128, 1600, 10), (200, 1025, 10), (133, 4097, 10), (150, 36, 10)),
    *((135, 2049, 13), (135, 640, 16), (9, 2048, 32), (300, 2044, 32), (40, 8192, 10)),
    *((40, 8193, 10), (5, 3000, 32)),
]
TOO_MANY_FOR_ONE_KERNEL = {(300, 2044, 32), (40, 8193, 10), (5, 3000, 32)}


def draw(rng, rows, features, classes, rate):
    """Draws inputs whose logits are small integers, which no order of additions rounds."""
    x = np.where(rng.random((rows, features)) < 3 / features, 1.0, 0.0)
    kernel, bias = rng.integers(-1, 2, (features, classes)), rng.integers(-1, 2, classes)
    labels = rng.integers(-1, classes + 1, rows).astype(np.int32)  # some are no classes
    inputs = [x, kernel.astype(np.float64), bias.astype(np.float64), labels]
    inputs.append(rng.standard_normal(rows))
    if rate is not None:
        inputs.append(rng.integers(-(2**63), 2**63, 2, dtype=np.int64))
    return inputs


def as_float32(arrays):
    return [a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays]


@pytest.mark.parametrize("rate", [None, 0.5], ids=["plain", "dropout"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_loss_head(size, rate, device, rng):
    inputs = draw(rng, *size, rate)
    attributes = {"epsilon": 1e-7, "activation": "relu", "activation_alpha": 0.0}
    if rate is not None:
        attributes |= {"rate": rate, "stream": 5}
    # Only the joined kernel multiplies without TF32, whose 11 bits exceed the tolerance.
    allow_tf32 = size not in TOO_MANY_FOR_ONE_KERNEL
    outputs = call(HEAD, as_float32(inputs), attributes, device, allow_tf32)
    # The reference gets the inputs as float32 holds them, because sums over the classes may cancel.
    exact = [a.astype(np.float64) if a.dtype == np.float32 else a for a in as_float32(inputs)]
    for output, wanted in zip(outputs, loss_head(*exact, **attributes), strict=True):
        # The sum of n exponentials has up to n roundings of 6e-8, and everything else has about as
        # many. Losses and gradients stay below 15 here. The bound is absolute, since p - 1 cancels
        # near p = 1.
        np.testing.assert_allclose(output, wanted, rtol=0, atol=2e-6 * size[2])


@pytest.mark.parametrize("size", [(64, 3136, 10), (128, 1600, 10), (64, 120, 10)], ids=str)
def test_the_same_bits_in_every_run(size, device, rng):
    inputs = draw(rng, *size, 0.25)
    inputs[0] = rng.standard_normal(size[:2])
    attributes = {"epsilon": 1e-7, "activation": "tanh", "activation_alpha": 0.0}
    attributes |= {"rate": 0.25, "stream": 1}
    first = call(HEAD, as_float32(inputs), attributes, device)
    for _ in range(5):
        results = call(HEAD, as_float32(inputs), attributes, device)
        for again, before in zip(results, first, strict=True):
            np.testing.assert_array_equal(again, before)


def classifier(size, activation, rate):
    """Traces a step: loss, probabilities, and gradients of kernel, bias and input."""
    rows, features, classes = size
    graph = _core.Graph()
    x = graph.input("x", [rows, features], "float32")
    kernel = graph.input("kernel", [features, classes], "float32")
    bias = graph.input("bias", [classes], "float32")
    labels = graph.input("labels", [rows], "int32")
    state = graph.input("state", [2], "int64")

    def apply(op, values, **attributes):
        return graph.apply(op, values, attributes)[0]

    given = apply(activation, [x])
    if rate is not None:
        given = apply("dropout", [given, state], rate=rate, stream=9)
    product = apply("matmul", [given, kernel], transpose_a=False, transpose_b=False)
    p = apply("softmax", [apply("add", [product, bias])], axis=-1)
    losses = apply("sparse_cross_entropy", [p, labels], epsilon=1e-7)
    loss = apply("reduce_mean", [losses], axes=[], keepdims=False)
    return graph, [loss, p, *graph.gradients(loss, [kernel, bias, x])]


@pytest.mark.parametrize("rate", [None, 0.25], ids=["plain", "dropout"])
@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
@pytest.mark.parametrize("size", [(64, 128, 10), (96, 1600, 10), (33, 77, 7)], ids=str)
def test_loss_head_in_a_program(size, activation, rate, device, rng):
    """One kernel runs where the device has it, and drops the same elements as separate ops."""
    rows, features, classes = size
    graph, outputs = classifier(size, activation, rate)
    arrays = [
        rng.standard_normal((rows, features)),
        rng.standard_normal((features, classes)) / np.sqrt(features),
        rng.standard_normal(classes),
        rng.integers(0, classes, rows).astype(np.int32),
        rng.integers(-(2**63), 2**63, 2, dtype=np.int64),
    ]
    results = []
    for optimize in (False, True):
        program = _core.Program.compile(graph, outputs, device, optimize=optimize)
        program.run(harness.to_device(as_float32(arrays), device))
        results.append([y.numpy() for y in program.outputs()])
    names = [row["label"].split(" (")[0] for row in program.describe()]
    assert (HEAD in names) == (device != "cpu")
    assert ("dropout" in names) == (device == "cpu" and rate is not None)
    for apart, joined in zip(*results, strict=True):
        # TF32 products, where the device has them, have errors of 2^-11 of their terms.
        error = np.linalg.norm(joined - apart) / np.linalg.norm(apart)
        assert error <= (1e-6 if device == "cpu" else 2e-3)
    dx_apart, dx_joined = results[0][-1], results[1][-1]
    np.testing.assert_array_equal(dx_joined == 0, dx_apart == 0)
    assert rate is None or 0.15 < np.mean(dx_joined[arrays[0] > 0] == 0) < 0.35


def test_activations_of_gradients(device, rng):
    """Each activation's gradient is taken of an input that is the activation's output."""
    for activation, alpha in [("leaky_relu", 0.25), ("clipped_relu", 1.0), ("elu", 0.5)]:
        inputs = draw(rng, 40, 68, 10, None)
        inputs[0] = activate(rng.integers(-3, 4, (40, 68)) / 2, activation, alpha)
        inputs[1] /= 64
        attributes = {"epsilon": 0.0, "activation": activation, "activation_alpha": alpha}
        outputs = call(HEAD, as_float32(inputs), attributes, device)
        exact = [a.astype(np.float64) if a.dtype == np.float32 else a for a in as_float32(inputs)]
        for output, wanted in zip(outputs, loss_head(*exact, **attributes), strict=True):
            np.testing.assert_allclose(output, wanted, rtol=0, atol=2e-5)

"""Matrix products with TF32 allowed are right on every device, at sizes where kernels change."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kerascnn import _core

from . import harness
from .fusions import call
from .reference import activate, matmul_activation_grad
from .reference_losses import dense_sparse_softmax_cross_entropy

# Rows and columns lie below and above those of a tile, and some are multiples of 4 (vector loads).
# One warp, one block or several blocks share a sum. Then come the products of small convolutional
# networks.
SIZES = [
    *itertools.product([1, 7, 33, 64, 129], [1, 4, 33, 129, 1000], [1, 7, 20, 33, 128]),
    *((64, 3136, 128), (64, 256, 120), (64, 128, 3136), (3136, 64, 128), (256, 64, 120)),
    *((64, 3136, 10), (128, 1600, 10), (64, 10, 3136), (1600, 128, 10), (513, 514, 515)),
]
TRANSPOSES = list(itertools.product([False, True], repeat=2))


@pytest.fixture(autouse=True)
def allow_tf32():
    with harness.tf32_off():  # it restores the setting
        _core.set_allow_tf32(True)
        yield


def matmul(a, b, transpose_a, transpose_b, device):
    stored = [a.T if transpose_a else a, b.T if transpose_b else b]
    inputs = harness.to_device([np.ascontiguousarray(x, dtype=np.float32) for x in stored], device)
    attributes = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    return _core.apply("matmul", inputs, attributes)[0].numpy().astype(np.float64)


def whole_numbers(rng, *shape):
    """Draws integers that are exact in TF32, with products whose float32 sums are exact too."""
    return rng.integers(-8, 9, shape).astype(np.float64)


def tolerance_norm(a, b):
    """Returns what the error's norm must not exceed.

    Both factors of a product are rounded to 11 significant bits: relative errors of up to 2^-11,
    with a standard deviation below 0.6 * 2^-11 each. They are independent, so an element's error
    has a standard deviation below 0.9 * 2^-11 times the root of the sum of the squared products.
    Twice 2^-10 is more than four of these, and enough for a result of one element.
    """
    return 2.0**-9 * np.sqrt(((a**2) @ (b**2)).sum())


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_matmul(size, device, rng):
    m, k, n = size
    for transposes in TRANSPOSES:
        a, b = whole_numbers(rng, m, k), whole_numbers(rng, k, n)
        np.testing.assert_array_equal(
            matmul(a, b, *transposes, device), a @ b, err_msg=f"{size} {transposes} on {device}"
        )
        a = rng.standard_normal((m, k)).astype(np.float32).astype(np.float64)
        b = rng.standard_normal((k, n)).astype(np.float32).astype(np.float64)
        error = np.linalg.norm(matmul(a, b, *transposes, device) - a @ b)
        assert error <= tolerance_norm(a, b), f"{size} {transposes} on {device}: {error}"


@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("activation", ["linear", "relu", "leaky_relu"])
@pytest.mark.parametrize("size", [(1, 1, 1), (7, 33, 5), (33, 300, 36), (64, 3136, 128)], ids=str)
def test_dense(size, activation, has_bias, device, rng):
    m, k, n = size
    x, kernel = whole_numbers(rng, m, k), whole_numbers(rng, k, n)
    bias = whole_numbers(rng, n)
    inputs = [x, kernel, bias] if has_bias else [x, kernel]
    tensors = harness.to_device([a.astype(np.float32) for a in inputs], device)
    # A slope of 1/4 keeps multiples of 1/4 exact.
    attributes = {"activation": activation, "activation_alpha": 0.25}
    y = _core.apply("dense", tensors, attributes)[0].numpy().astype(np.float64)
    wanted = x @ kernel + (bias if has_bias else 0)
    slope = {"linear": 1.0, "relu": 0.0, "leaky_relu": 0.25}[activation]
    np.testing.assert_array_equal(y, np.where(wanted > 0, wanted, slope * wanted))


def test_the_same_bits_in_every_run(device, rng):
    a = rng.standard_normal((64, 3136))
    b = rng.standard_normal((3136, 100))
    first = matmul(a, b, False, False, device)
    for _ in range(5):
        np.testing.assert_array_equal(matmul(a, b, False, False, device), first)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_comes_out(value, device, rng):
    """The value stands at a row's or column's end, where a wrong guard would drop or spread it."""
    a, b = whole_numbers(rng, 33, 300), np.abs(whole_numbers(rng, 300, 37)) + 1
    a[32, 299] = value
    y = matmul(a, b, False, False, device)
    assert not np.isfinite(y[32]).any()
    np.testing.assert_array_equal(y[:32], a[:32] @ b)


LOSS_SIZES = [(1, 1, 2), (7, 33, 5), (33, 300, 10), (64, 3136, 10), (128, 1600, 10), (40, 70, 32)]


@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("epsilon", [0.0, 1e-7], ids=["exact", "clipped"])
@pytest.mark.parametrize("size", LOSS_SIZES, ids=str)
def test_dense_loss(size, epsilon, has_bias, device, rng):
    m, k, n = size
    # Few products are not 0, so that logits are small integers, which are exact in TF32.
    x = np.where(rng.random((m, k)) < 3 / k, 1.0, 0.0)
    kernel, bias = rng.integers(-1, 2, (k, n)), rng.integers(-1, 2, n)
    labels = rng.integers(-1, n + 1, m).astype(np.int32)  # some are no classes
    gy = rng.standard_normal(m)
    inputs = [x, kernel, bias, labels, gy] if has_bias else [x, kernel, labels, gy]
    arrays = [a if a is labels else np.asarray(a, dtype=np.float32) for a in inputs]
    name = "dense_sparse_softmax_cross_entropy"
    outputs = call(name, arrays, {"epsilon": epsilon}, device)
    exact = [np.asarray(a, dtype=np.float64) if a is not labels else a for a in inputs]
    expected = dense_sparse_softmax_cross_entropy(*exact, epsilon=epsilon)
    for output, wanted in zip(outputs, expected, strict=True):
        # The sum of n exponentials has up to n roundings of 6e-8, and everything else has about as
        # many. Losses and gradients stay below 15 here. The bound is absolute, since p - 1 cancels
        # near p = 1.
        np.testing.assert_allclose(output, wanted, rtol=0, atol=2e-6 * n)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "clipped_relu"])
@pytest.mark.parametrize("size", [(1, 1, 1), (7, 33, 5), (64, 10, 128), (64, 300, 36)], ids=str)
def test_gradient_before_an_activation(size, activation, device, rng):
    m, k, n = size
    a, b = whole_numbers(rng, m, k), whole_numbers(rng, n, k)
    alpha = {"leaky_relu": 0.25, "clipped_relu": 1.0}.get(activation, 0.0)
    y = activate(rng.integers(-2, 3, (m, n)) / 2, activation, alpha)
    attributes = {
        "transpose_a": False,
        "transpose_b": True,
        "activation": activation,
        "activation_alpha": alpha,
    }
    arrays = [x.astype(np.float32) for x in (a, b, y)]
    (result,) = call("matmul_activation_grad", arrays, attributes, device)
    wanted = matmul_activation_grad(a, b, y, **attributes)
    np.testing.assert_array_equal(result.astype(np.float64), wanted)


# The sizes lie around tiles of the result and pieces of the sum, with and without vector loads. One
# warp, one block or several blocks add up the samples. Then come the dense layers of small
# networks.
WGRAD_SIZES = [
    *itertools.product([1, 7, 33, 64, 129], [1, 7, 33, 64, 129], [1, 7, 10, 33, 64]),
    *((64, 3136, 128), (64, 1600, 10), (128, 128, 10), (128, 256, 120), (64, 120, 84)),
    *((255, 36, 129), (256, 40, 132), (257, 40, 10), (1000, 129, 33), (0, 5, 4)),
]


def dense_wgrad(x, g, device):
    arrays = [a.astype(np.float32) for a in (x, g)]
    return [y.astype(np.float64) for y in call("dense_wgrad", arrays, {}, device)]


@pytest.mark.parametrize("size", WGRAD_SIZES, ids=str)
def test_dense_wgrad(size, device, rng):
    n, k, m = size
    # The numbers are multiples of 2^-12, so a float32 gradient of the bias is exact beyond TF32's
    # bits.
    x, g = whole_numbers(rng, n, k), whole_numbers(rng, n, m)
    kernel, bias = dense_wgrad(x, g, device)
    np.testing.assert_array_equal(kernel, x.T @ g)
    np.testing.assert_array_equal(bias, g.sum(axis=0))
    fine = g + rng.integers(-9, 10, g.shape) * 2.0**-12
    np.testing.assert_array_equal(dense_wgrad(x, fine, device)[1], fine.sum(axis=0))


@pytest.mark.parametrize("size", [(64, 37, 33), (128, 40, 10), (64, 3136, 128)], ids=str)
def test_dense_wgrad_in_a_program(size, device, rng):
    """A step's gradients are joined, as those of a model's layer, if the device gains from it."""
    n, k, m = size
    graph = _core.Graph()
    x, g = graph.input("x", [n, k], "float32"), graph.input("g", [n, m], "float32")
    outputs = [
        graph.apply("reduce_sum", [g], {"axes": [0], "keepdims": True})[0],
        graph.apply("matmul", [x, g], {"transpose_a": True, "transpose_b": False})[0],
    ]
    program = _core.Program.compile(graph, outputs, device)
    arrays = [whole_numbers(rng, n, k), whole_numbers(rng, n, m)]
    program.run(harness.to_device([a.astype(np.float32) for a in arrays], device))
    bias, kernel = [y.numpy() for y in program.outputs()]
    np.testing.assert_array_equal(bias, arrays[1].sum(axis=0, keepdims=True))
    np.testing.assert_array_equal(kernel, arrays[0].T @ arrays[1])
    is_joined = any(row["label"] == "dense_wgrad" for row in program.describe())
    assert is_joined == (device != "cpu")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bias_gradient_that_is_not_finite_comes_out(value, device, rng):
    x, g = np.abs(whole_numbers(rng, 77, 40)) + 1, whole_numbers(rng, 77, 37)
    g[76, 36] = value
    kernel, bias = dense_wgrad(x, g, device)
    assert not np.isfinite(bias[36]) and not np.isfinite(kernel[:, 36]).any()
    np.testing.assert_array_equal(bias[:36], g[:, :36].sum(axis=0))
    np.testing.assert_array_equal(kernel[:, :36], x.T @ g[:, :36])


def test_dense_wgrad_gives_the_same_bits_in_every_run(device, rng):
    x, g = rng.standard_normal((128, 100)), rng.standard_normal((128, 70))
    first = dense_wgrad(x, g, device)
    for _ in range(5):
        for again, before in zip(dense_wgrad(x, g, device), first, strict=True):
            np.testing.assert_array_equal(again, before)

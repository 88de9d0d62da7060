"""NaN in the input gives NaN in the output. Hidden, it would make a diverged model look healthy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kerascnn import _core

from .harness import to_device

ACTIVATIONS = {
    "linear": 0.0,
    "relu": 0.0,
    "leaky_relu": 0.2,
    "clipped_relu": 6.0,
    "elu": 1.0,
    "sigmoid": 0.0,
    "tanh": 0.0,
    "gelu": 0.0,
    "silu": 0.0,
    "softplus": 0.0,
}
DTYPES = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
CONVOLUTION = {"strides": [1, 1], "dilations": [1, 1], "padding": [1, 1, 1, 1], "groups": 1}


def fused(activation: str) -> dict:
    return {"activation": activation, "activation_alpha": ACTIVATIONS[activation]}


def apply(op, inputs, attributes, device):
    return _core.apply(op, to_device(inputs, device), attributes)[0].numpy().astype(np.float64)


# These are units of a classifier and of a hidden layer, and more than small kernels take.
@pytest.mark.parametrize("sizes", [(5, 7, 6), (64, 100, 96), (300, 700, 520)])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_dense(activation, dtype, with_bias, sizes, device, rng):
    rows, depth, units = sizes
    x = rng.standard_normal((rows, depth)).astype(DTYPES[dtype])
    x[1, 2] = np.nan
    kernel = rng.standard_normal((depth, units)).astype(DTYPES[dtype])
    bias = [np.ones(units, DTYPES[dtype])] if with_bias else []
    y = apply("dense", [x, kernel, *bias], fused(activation), device)
    lost = np.zeros(y.shape, bool)
    lost[1] = True
    np.testing.assert_array_equal(np.isnan(y), lost)


@pytest.mark.parametrize("channels", [(1, 32), (32, 64), (3, 5), (160, 192)])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_conv2d(activation, dtype, with_bias, channels, device, rng):
    depth, filters = channels
    x = rng.standard_normal((2, 12, 12, depth)).astype(DTYPES[dtype])
    x[1, 4, 6, depth - 1] = np.nan
    kernel = rng.standard_normal((3, 3, depth, filters)).astype(DTYPES[dtype])
    bias = [np.ones(filters, DTYPES[dtype])] if with_bias else []
    y = apply("conv2d", [x, kernel, *bias], CONVOLUTION | fused(activation), device)
    lost = np.zeros(y.shape, bool)
    lost[1, 3:6, 5:8] = True
    np.testing.assert_array_equal(np.isnan(y), lost)


@pytest.mark.parametrize("where", ["kernel", "bias"])
@pytest.mark.parametrize("op", ["dense", "conv2d"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_in_the_weights(activation, op, where, device, rng):
    x = rng.standard_normal((4, 9, 9, 8) if op == "conv2d" else (4, 8)).astype(np.float32)
    kernel = rng.standard_normal((3, 3, 8, 20) if op == "conv2d" else (8, 20)).astype(np.float32)
    bias = np.ones(20, np.float32)
    (kernel if where == "kernel" else bias)[..., 7] = np.nan
    attributes = (CONVOLUTION if op == "conv2d" else {}) | fused(activation)
    y = apply(op, [x, kernel, bias], attributes, device)
    lost = np.zeros(y.shape, bool)
    lost[..., 7] = True
    np.testing.assert_array_equal(np.isnan(y), lost)


@pytest.mark.parametrize("activation", ["relu", "clipped_relu"])
@pytest.mark.parametrize("op", ["dense", "conv2d"])
def test_sums_that_overflow(op, activation, rng):
    """The order of a sum decides how finite inputs overflow: here the linear kernel's order."""
    x = rng.choice([2e38, -2e38], (8, 5, 5, 64) if op == "conv2d" else (64, 640))
    kernel = rng.choice([4.0, -4.0], (3, 3, 64, 32) if op == "conv2d" else (640, 96))
    inputs = [x.astype(np.float32), kernel.astype(np.float32)]
    attributes = CONVOLUTION if op == "conv2d" else {}
    linear = apply(op, inputs, attributes | fused("linear"), "cpu")
    assert not np.isfinite(linear).any()
    upper = 6.0 if activation == "clipped_relu" else np.inf
    wanted = np.where(np.isnan(linear), linear, np.clip(linear, 0.0, upper))
    np.testing.assert_array_equal(apply(op, inputs, attributes | fused(activation), "cpu"), wanted)


@pytest.mark.parametrize("op", ["dense", "conv2d"])
def test_infinity_stays_what_it_is(op, device):
    """relu(-inf) is 0 and relu(inf) is inf, also in the code that looks for NaN."""
    x = np.ones((2, 5, 5, 8) if op == "conv2d" else (2, 8), np.float32)
    x[1] = np.inf
    kernel = np.ones((1, 1, 8, 20) if op == "conv2d" else (8, 20), np.float32)
    kernel[..., 10:] = -1
    attributes = (CONVOLUTION | {"padding": [0, 0, 0, 0]}) if op == "conv2d" else {}
    y = apply(op, [x, kernel, np.ones(20, np.float32)], attributes | fused("relu"), device)
    np.testing.assert_array_equal(y[0], np.broadcast_to([9.0] * 10 + [0.0] * 10, y[0].shape))
    np.testing.assert_array_equal(y[1], np.broadcast_to([np.inf] * 10 + [0.0] * 10, y[1].shape))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["max_pool2d", "avg_pool2d"])
def test_pooling(op, dtype, device, rng):
    x = rng.standard_normal((2, 8, 8, 5)).astype(DTYPES[dtype])
    x[0, 3, 5, 2] = np.nan
    attributes = {"window": [2, 2], "strides": [2, 2], "padding": [0, 0, 0, 0]}
    y = apply(op, [x], attributes, device)
    lost = np.zeros(y.shape, bool)
    lost[0, 1, 2, 2] = True
    np.testing.assert_array_equal(np.isnan(y), lost)


@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name != "linear"])
@pytest.mark.parametrize("pooled", [True, False])
def test_compiled_convolution_with_bias_activation_and_pooling(activation, pooled, device, rng):
    """In a program these ops become one kernel or two."""
    graph = _core.Graph()
    image = graph.input("image", (3, 12, 12, 4), "float32")
    kernel = graph.input("kernel", (3, 3, 4, 16), "float32")
    bias = graph.input("bias", (16,), "float32")
    parameter = {
        "leaky_relu": "negative_slope",
        "clipped_relu": "max_value",
        "elu": "alpha",
    }.get(activation)
    attributes = {parameter: ACTIVATIONS[activation]} if parameter else {}
    if activation == "gelu":
        attributes = {"approximate": False}
    y = graph.apply("conv2d", [image, kernel], CONVOLUTION | fused("linear"))[0]
    y = graph.apply(activation, [graph.apply("add", [y, bias], {})[0]], attributes)[0]
    if pooled:
        pool = {"window": [2, 2], "strides": [2, 2], "padding": [0, 0, 0, 0]}
        y = graph.apply("max_pool2d", [y], pool)[0]
    program = _core.Program.compile(graph, [y], device)
    x = rng.standard_normal((3, 12, 12, 4)).astype(np.float32)
    x[2, 6, 6, 0] = np.nan
    inputs = [x, rng.standard_normal((3, 3, 4, 16)).astype(np.float32), np.ones(16, np.float32)]
    program.run(to_device(inputs, device))
    result = np.array(program.outputs()[0].numpy())
    lost = np.zeros(result.shape, bool)
    lost[2, slice(2, 4) if pooled else slice(5, 8), slice(2, 4) if pooled else slice(5, 8)] = True
    np.testing.assert_array_equal(np.isnan(result), lost)

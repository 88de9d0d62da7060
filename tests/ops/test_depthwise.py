"""Depthwise convolutions, for which GPUs have kernels of their own: all sizes, dtypes and ends."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kerascnn import _core

from .harness import tf32_off
from .reference import REFERENCES

OPS = ["conv2d", "conv2d_dgrad", "conv2d_wgrad"]
# (images, kernel, strides, padding as top, bottom, left, right). Square kernels of 3, 5 and 7 have
# tiles of 4 x 7 results (of 2 x 14 where the data gradient has a stride), eight to a block, and
# blocks have 32 channels: each of these has some that are not full.
GEOMETRIES = {
    "3x3": ((3, 13, 11, 34), (3, 3), (1, 1), (1, 1, 1, 1)),
    "3x3, 12 channels": ((2, 30, 17, 12), (3, 3), (1, 1), (0, 0, 0, 0)),
    "3x3, halves": ((3, 12, 30, 96), (3, 3), (2, 2), (0, 1, 0, 1)),
    "3x3, halves of odd": ((2, 13, 15, 40), (3, 3), (2, 2), (1, 1, 1, 1)),
    "3x3, one side odd": ((2, 14, 15, 12), (3, 3), (2, 2), (0, 1, 1, 1)),
    "3x3, 17 channels": ((2, 9, 10, 17), (3, 3), (1, 1), (1, 1, 1, 1)),
    "3x3, 3 channels": ((2, 9, 10, 3), (3, 3), (2, 2), (0, 1, 0, 1)),
    "3x3, 1 channel": ((2, 9, 10, 1), (3, 3), (1, 1), (1, 1, 1, 1)),
    "5x5": ((2, 9, 18, 96), (5, 5), (1, 1), (2, 2, 2, 2)),
    "5x5, halves": ((2, 28, 9, 24), (5, 5), (2, 2), (1, 2, 2, 2)),
    "5x5, halves both": ((5, 14, 16, 24), (5, 5), (2, 2), (1, 2, 1, 2)),
    "5x5, wide padding": ((9, 1, 3, 4), (5, 5), (1, 1), (4, 4, 4, 4)),
    "7x7": ((5, 7, 7, 40), (7, 7), (1, 1), (3, 3, 3, 3)),
    "7x7, large": ((1, 29, 31, 12), (7, 7), (1, 1), (3, 3, 3, 3)),
    "7x7, halves": ((1, 20, 30, 6), (7, 7), (2, 2), (2, 3, 2, 3)),
    "7x7, halves of odd": ((2, 15, 9, 8), (7, 7), (2, 2), (3, 3, 3, 3)),
    "1x3": ((2, 7, 9, 3), (1, 3), (1, 1), (0, 0, 1, 1)),
    "4x4": ((2, 9, 11, 17), (4, 4), (2, 1), (1, 2, 1, 2)),
    "5x7": ((2, 10, 11, 12), (5, 7), (2, 2), (1, 2, 2, 3)),
    "6x2": ((3, 8, 5, 96), (6, 2), (1, 2), (3, 2, 0, 1)),
}


def numbers_of(dtype, shape, rng):
    """Returns numbers that `dtype` has, as float64."""
    narrow = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return rng.standard_normal(shape).astype(narrow).astype("float64")


def call_of(op, geometry, dtype, rng):
    images, kernel, strides, padding = geometry
    channels = images[3]
    extents = [
        (images[1 + i] + padding[2 * i] + padding[2 * i + 1] - kernel[i]) // strides[i] + 1
        for i in (0, 1)
    ]
    x, gy = (numbers_of(dtype, (images[0], *e, channels), rng) for e in (images[1:3], extents))
    weights = numbers_of(dtype, (*kernel, 1, channels), rng)
    attributes: dict[str, Any] = {
        "strides": list(strides),
        "padding": list(padding),
        "dilations": [1, 1],
        "groups": channels,
    }
    if op == "conv2d":
        linear = {"activation": "linear", "activation_alpha": 0.0}
        return [x, weights, numbers_of(dtype, channels, rng)], attributes | linear
    if op == "conv2d_dgrad":
        return [gy, weights], attributes | {"input_shape": list(images)}
    return [x, gy], attributes | {"kernel_shape": [*kernel, 1, channels]}


def run(op, inputs, attributes, dtype, device):
    tensors = [_core.from_numpy(a.astype("float32"), device) for a in inputs]
    tensors = [_core.apply("cast", [t], {"dtype": dtype})[0] for t in tensors]
    (result,) = _core.apply(op, tensors, attributes)
    assert result.dtype == dtype
    return np.array(_core.apply("cast", [result], {"dtype": "float32"})[0].numpy(), "float64")


def assert_close(actual, wanted, dtype):
    # A 16-bit result is rounded once, by half of eps at most. In float32 the sums of at most some
    # hundred products lose a few roundings.
    eps = float(ml_dtypes.finfo(getattr(ml_dtypes, dtype, dtype)).eps)
    tolerance = eps * (8 if dtype == "float32" else 0.5)
    assert actual.shape == wanted.shape
    assert np.linalg.norm(actual - wanted) <= tolerance * np.linalg.norm(wanted)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_sizes_strides_and_padding(name, op, dtype, device, rng):
    inputs, attributes = call_of(op, GEOMETRIES[name], dtype, rng)
    wanted = REFERENCES[op](*inputs, **attributes)
    with tf32_off():
        actual = run(op, inputs, attributes, dtype, device)
        again = run(op, inputs, attributes, dtype, device)
    assert_close(actual, wanted, dtype)
    assert again.tobytes() == actual.tobytes()


@pytest.mark.parametrize("activation, alpha", [("relu", 0.0), ("leaky_relu", 0.2), ("gelu", 0.0)])
@pytest.mark.parametrize("name", ["3x3, halves", "7x7", "4x4"])
def test_an_activation_follows_the_bias(name, activation, alpha, device, rng):
    inputs, attributes = call_of("conv2d", GEOMETRIES[name], "float32", rng)
    attributes |= {"activation": activation, "activation_alpha": alpha}
    wanted = REFERENCES["conv2d"](*inputs, **attributes)
    with tf32_off():
        assert_close(run("conv2d", inputs, attributes, "float32", device), wanted, "float32")


def test_no_bias(device, rng):
    inputs, attributes = call_of("conv2d", GEOMETRIES["5x5"], "float32", rng)
    wanted = REFERENCES["conv2d"](*inputs[:2], **attributes)
    with tf32_off():
        actual = run("conv2d", inputs[:2], attributes, "float32", device)
    assert_close(actual, wanted, "float32")


@pytest.mark.parametrize("op", OPS)
def test_padding_does_not_meet_infinity(op, device, rng):
    """What lies beyond an image is no part of any sum, nor is a neighbouring image or channel."""
    inputs, attributes = call_of(op, GEOMETRIES["3x3"], "float32", rng)
    wanted = REFERENCES[op](*inputs, **attributes)
    array = inputs[0]
    array[1, 6, 5, 7] = np.inf
    with tf32_off():
        actual = run(op, inputs, attributes, "float32", device)
    if op == "conv2d_wgrad":
        touched = np.zeros(wanted.shape, bool)
        touched[..., 7] = True
    else:
        touched = np.zeros(wanted.shape, bool)
        touched[1, 5:8, 4:7, 7] = True
    assert not np.isfinite(actual[touched]).any()
    assert_close(actual[~touched], wanted[~touched], "float32")


def kernel_of(op, geometry, dtype, device, rng):
    inputs, attributes = call_of(op, geometry, dtype, rng)
    graph = _core.Graph()
    values = [graph.input(f"x{i}", x.shape, dtype) for i, x in enumerate(inputs)]
    program = _core.Program.compile(
        graph, graph.apply(op, values, attributes), device, optimize=False, allow_tf32=False
    )
    (call,) = program.describe()
    return call["kernel"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", [name for name in GEOMETRIES if "1 channel" not in name])
def test_gpus_run_own_kernels(name, op, dtype, cuda_device, rng):
    found = kernel_of(op, GEOMETRIES[name], dtype, cuda_device, rng)
    assert found == f"kerascnn depthwise {op}"


@pytest.mark.parametrize("op", OPS)
def test_what_others_compute(op, cuda_device, rng):
    """Kernels above 7, strides above 2 and float64 are not for these kernels."""
    others = [
        (((1, 12, 12, 4), (8, 3), (1, 1), (0, 0, 0, 0)), "float32"),
        (((1, 12, 12, 4), (3, 3), (3, 3), (0, 0, 0, 0)), "float32"),
        (((1, 12, 12, 4), (3, 3), (1, 1), (0, 0, 0, 0)), "float64"),
    ]
    for geometry, dtype in others:
        assert "depthwise" not in kernel_of(op, geometry, dtype, cuda_device, rng)

"""The CPU's own kernels of depthwise gradients, batch normalization and casts, in all widths."""

import os
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from kerascnn import _core

from .reference import REFERENCES

# Images, height, width, channels, kernel, strides, dilations, padding as top, bottom, left, right.
# oneDNN takes kernels of three columns and fewer.
DEPTHWISE = {
    "7x7": ((5, 9, 11, 37), (7, 7), (1, 1), (1, 1), (3, 3, 3, 3)),
    "wide images": ((2, 5, 203, 16), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    "high images": ((1, 301, 33, 24), (4, 5), (2, 1), (1, 1), (1, 2, 2, 2)),
    "one image": ((1, 6, 5, 3), (4, 4), (1, 1), (1, 1), (0, 0, 0, 0)),
    "more columns than a piece": ((3, 13, 29, 18), (3, 17), (1, 1), (1, 1), (1, 1, 8, 8)),
    "strides": ((4, 17, 19, 33), (5, 6), (3, 2), (1, 1), (2, 2, 3, 2)),
    "dilations": ((3, 20, 22, 20), (4, 5), (1, 1), (3, 2), (4, 5, 4, 4)),
    "padding beyond the image": ((2, 3, 2, 9), (5, 5), (1, 1), (1, 1), (6, 5, 7, 6)),
    "rows that are only padding": ((2, 4, 5, 8), (2, 4), (5, 5), (1, 1), (9, 9, 9, 9)),
}
NORMALIZED = [(3, 7, 5, 37), (2, 9, 64), (700, 3), (1, 40), (333, 1), (16, 130)]
INSTRUCTION_SETS = ["plain", "avx2", "avx512"]  # a processor without it takes the next smaller one

PROGRAM = """
import pickle
import sys
from kerascnn import _core

with open(sys.argv[1], "rb") as file:
    calls = pickle.load(file)
found = []
for op, inputs, attributes in calls:
    outputs = _core.apply(op, [_core.from_numpy(x, "cpu") for x in inputs], attributes)
    found.append([output.numpy() for output in outputs])
with open(sys.argv[2], "wb") as file:
    pickle.dump(found, file)
"""


def apply(op, inputs, attributes):
    tensors = [_core.from_numpy(a.astype(np.float32), "cpu") for a in inputs]
    return [output.numpy() for output in _core.apply(op, tensors, attributes)]


def apply_with(name, op, calls, folder):
    """Returns the outputs of calls of one op in a process that uses the instruction set."""
    return apply_all_with(name, [(op, inputs, more) for inputs, more in calls], folder)


def apply_all_with(name, calls, folder):
    """The same for calls of any ops, each with its name, its inputs and its attributes."""
    given, found = folder / "given", folder / "found"
    calls = [(op, [x.astype(np.float32) for x in inputs], more) for op, inputs, more in calls]
    given.write_bytes(pickle.dumps(calls))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, given, found],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "KERASCNN_CPU_ISA": name},
    )
    assert done.returncode == 0, done.stderr
    return pickle.loads(found.read_bytes())


def draw(rng, *shape):
    """Returns float64 values that float32 has too."""
    return rng.normal(size=shape).astype(np.float32).astype(np.float64)


def depthwise_call(case, rng):
    (images, height, width, channels), kernel, strides, dilations, padding = DEPTHWISE[case]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    rows = (height + padding[0] + padding[1] - reach[0]) // strides[0] + 1
    columns = (width + padding[2] + padding[3] - reach[1]) // strides[1] + 1
    attributes = {
        "strides": list(strides),
        "dilations": list(dilations),
        "padding": list(padding),
        "groups": channels,
        "kernel_shape": [*kernel, 1, channels],
    }
    inputs = [
        draw(rng, images, height, width, channels),
        draw(rng, images, rows, columns, channels),
    ]
    return inputs, attributes


def check_sums(found, wanted, terms):
    # Products of numbers of about 1 are rounded by some u = 2**-24, a partial sum of k of them by
    # some u * sqrt(k). With n terms added one after another these errors' standard deviation is at
    # most u / sqrt(3) times sqrt(n) and u * n / sqrt(6). The bound is more than six of each: one
    # product too many or too few is a thousand times as much.
    bound = 2e-6 * np.sqrt(terms) + 1.5e-7 * terms
    np.testing.assert_allclose(found, wanted, rtol=0, atol=bound)


@pytest.mark.parametrize("case", DEPTHWISE)
def test_gradient_of_a_depthwise_kernel(case, rng):
    inputs, attributes = depthwise_call(case, rng)
    wanted = REFERENCES["conv2d_wgrad"](*inputs, **attributes)
    (found,) = apply("conv2d_wgrad", inputs, attributes)
    check_sums(found, wanted, inputs[1][..., 0].size)


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_gradient_of_a_depthwise_kernel_in_every_width(name, rng, tmp_path):
    calls = [depthwise_call(case, rng) for case in DEPTHWISE]
    for call, (found,) in zip(
        calls, apply_with(name, "conv2d_wgrad", calls, tmp_path), strict=True
    ):
        inputs, attributes = call
        wanted = REFERENCES["conv2d_wgrad"](*inputs, **attributes)
        check_sums(found, wanted, inputs[1][..., 0].size)


def test_the_own_kernel_takes_wide_depthwise_kernels():
    graph = _core.Graph()
    values = [graph.input("x", (2, 9, 9, 8), "float32"), graph.input("gy", (2, 9, 9, 8), "float32")]
    attributes = {"strides": [1, 1], "dilations": [1, 1], "padding": [2] * 4, "groups": 8}
    outputs = graph.apply("conv2d_wgrad", values, {**attributes, "kernel_shape": [5, 5, 1, 8]})
    (call,) = _core.Program.compile(graph, outputs, "cpu").describe()
    assert call["kernel"].startswith("kerascnn depthwise gradient")


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("argument", [0, 1])
def test_padding_does_not_meet_what_is_not_finite(argument, value, rng):
    inputs, attributes = depthwise_call("7x7", rng)
    wanted = REFERENCES["conv2d_wgrad"](*inputs, **attributes)
    # The first row's gradient and pixel meet only some taps of the kernel.
    inputs[argument][2, 0, 0, 5] = value
    (found,) = apply("conv2d_wgrad", inputs, attributes)
    meets = np.zeros(wanted.shape, bool)
    if argument == 0:
        meets[:4, :4, 0, 5] = True
    else:
        meets[3:, 3:, 0, 5] = True
    np.testing.assert_array_equal(np.isfinite(found), ~meets)
    # oneDNN, which computes this, adds one product after the other. The k-th sum is about sqrt(k),
    # and is rounded by up to 2^-24 of the next power of two: by the root of the sum of squares that
    # is 5e-8 times the number of products. Six times that is never reached.
    terms = inputs[1][..., 0].size
    np.testing.assert_allclose(found[~meets], wanted[~meets], rtol=0, atol=3e-7 * terms)


def normalization_call(shape, rng):
    x = (draw(rng, *shape) + 3).astype(np.float32).astype(np.float64)
    gamma, beta = draw(rng, shape[-1]), draw(rng, shape[-1])
    return [x, gamma, beta], {"epsilon": 1e-3}


def gradient_call(shape, rng):
    (x, gamma, beta), attributes = normalization_call(shape, rng)
    _, mean, _, inverse = REFERENCES["batch_norm"](x, gamma, beta, **attributes)
    return [
        draw(rng, *shape),
        x,
        gamma,
        *(np.float32(v).astype(float) for v in (mean, inverse)),
    ], {}


def check_all(found, wanted, rtol=2e-6):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * np.abs(other).max())


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_batch_normalization_in_every_width(name, rng, tmp_path):
    calls = [normalization_call(shape, rng) for shape in NORMALIZED]
    for call, found in zip(calls, apply_with(name, "batch_norm", calls, tmp_path), strict=True):
        inputs, attributes = call
        check_all(found, REFERENCES["batch_norm"](*inputs, **attributes))


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_gradient_of_batch_normalization_in_every_width(name, rng, tmp_path):
    calls = [gradient_call(shape, rng) for shape in NORMALIZED]
    for call, found in zip(
        calls, apply_with(name, "batch_norm_grad", calls, tmp_path), strict=True
    ):
        inputs, attributes = call
        wanted = REFERENCES["batch_norm_grad"](*inputs, **attributes)
        # With few rows gx is a small difference of large numbers: inverse is up to 30.
        scale = np.abs(inputs[0]).max() * np.abs(inputs[2] * inputs[4]).max()
        np.testing.assert_allclose(found[0], wanted[0], rtol=2e-6, atol=2e-6 * scale)
        # These are sums, which may be small where what they add up is not: each of n additions
        # rounds what there is so far, and each addend was rounded four times.
        gy, x, _, mean, inverse = inputs
        terms = (gy * (x - mean) * inverse, gy)
        for sums, one, added in zip(found[1:], wanted[1:], terms, strict=True):
            added = np.abs(added).reshape(-1, x.shape[-1])
            assert (np.abs(sums - one) <= (len(added) + 4) * 2.0**-24 * added.sum(0)).all()


def test_moments_keep_their_digits(rng):
    """Means far from zero, and first rows far from the mean, don't cost the variance its digits."""
    x = np.concatenate([draw(rng, 5000, 7), 50 * draw(rng, 3, 7)])[::-1] + 1e4
    x = x.astype(np.float32).astype(np.float64)
    mean, variance = apply("column_moments", [x], {"outer_axes": 0})
    np.testing.assert_allclose(mean, x.mean(0), rtol=1e-7)
    np.testing.assert_allclose(variance, x.var(0), rtol=2e-6)


def test_moments_of_equal_numbers_and_of_what_is_not_finite(rng):
    x = draw(rng, 300, 5)
    x[:, 0] = 0.1
    x[0, 1], x[0, 2], x[150, 3] = np.inf, np.nan, -np.inf
    mean, variance = apply("column_moments", [x], {"outer_axes": 0})
    assert mean[0] == np.float32(0.1)
    assert variance[0] < 1e-15
    np.testing.assert_array_equal(mean[1:4], [np.inf, np.nan, -np.inf])
    np.testing.assert_array_equal(np.isfinite(variance), [True, False, False, False, True])
    np.testing.assert_allclose(variance[4], x[:, 4].var(), rtol=2e-6)


def integer_bits(value, bits):
    """What a float is as an integer: truncated, within 64 bits, and of these the last ones."""
    whole = 0 if np.isnan(value) else int(np.clip(value, -(2.0**63), 2.0**63))
    return min(whole, 2**63 - 1) & (2**bits - 1)


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_casts_in_every_width(name, rng, tmp_path):
    # Any bits, most of which are far from 1, and a length that is no multiple of any vector's.
    drawn = rng.integers(0, 2**32, 1003, dtype=np.uint32).view(np.float32)
    near = np.concatenate([rng.uniform(-300, 300, 1003), [np.nan, np.inf, -np.inf, 2.0**31, -0.0]])
    inputs = [drawn, near.astype(np.float32)]
    targets = ["bfloat16", "float16", "int64", "int32", "int16", "uint8"]
    calls = [([x], {"dtype": target}) for x in inputs for target in targets]
    for ((x,), attributes), (found,) in zip(
        calls, apply_with(name, "cast", calls, tmp_path), strict=True
    ):
        target = attributes["dtype"]
        if target.startswith(("bfloat", "float")):
            with np.errstate(over="ignore", invalid="ignore"):
                wanted = x.astype(np.dtype(getattr(ml_dtypes, target, target)))
            np.testing.assert_array_equal(np.isnan(found), np.isnan(x))
            numbers = ~np.isnan(x)
            np.testing.assert_array_equal(
                found.view(np.uint16)[numbers], wanted.view(np.uint16)[numbers]
            )
        else:
            bits = 8 * found.itemsize
            wanted = [integer_bits(value, bits) for value in x]
            np.testing.assert_array_equal(
                found.view(f"uint{bits}"), np.array(wanted, f"uint{bits}")
            )


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_rows_of_softmax_in_every_width(op, name, rng, tmp_path):
    # One element, fewer than a vector has, several rows together and alone; 300 is computed alone.
    shapes = [
        (3, 1),
        (131, 3),
        (70, 15),
        (65, 16),
        (67, 17),
        (33, 64),
        (9, 255),
        (5, 256),
        (4, 300),
    ]
    inputs = [5 * draw(rng, *shape) for shape in shapes]
    for x in inputs:
        x[1, 0] = 80.0  # others are as good as nothing beside it
    bad = draw(rng, 70, 10)
    bad[3, 4], bad[66, 9], bad[20, 2] = np.nan, np.inf, -np.inf
    inputs.append(bad)
    calls = [([x], {"axis": -1}) for x in inputs]
    for x, (found,) in zip(inputs, apply_with(name, op, calls, tmp_path), strict=True):
        with np.errstate(invalid="ignore", divide="ignore"):
            shifted = x - x.max(-1, keepdims=True)
            wanted = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        if op == "softmax":
            wanted = np.exp(wanted)
        # log_softmax subtracts numbers of up to 100, whose roundings are 4e-6; an exponential and a
        # sum round by some 1e-7 of a result up to 1.
        atol = 1e-6 if op == "softmax" else 1e-5
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=atol)


# Sizes of images (n, h, w, c) with the new height and width: whole vectors of channels, parts of
# them, a single channel, several pieces of a row, and windows of many pixels.
RESIZED = [
    ((2, 5, 7, 37), (9, 12), "bilinear", False),
    ((1, 6, 5, 64), (12, 10), "bilinear", False),
    ((2, 9, 11, 1), (6, 17), "bicubic", False),
    ((2, 9, 11, 3), (6, 17), "lanczos3", True),
    ((1, 3, 900, 9), (2, 1301), "bilinear", False),
    ((1, 40, 61, 270), (3, 4), "lanczos5", True),
]


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_resized_images_are_the_same_in_every_width(name, rng, tmp_path):
    calls, gradients = [], []
    for shape, size, method, antialias in RESIZED:
        attributes = {"size": list(size), "method": method, "antialias": antialias}
        calls.append(([draw(rng, *shape)], attributes))
        gradient = draw(rng, shape[0], *size, shape[3])
        gradients.append(([gradient], {**attributes, "input_shape": list(shape)}))
    for op, some in (("resize2d", calls), ("resize2d_grad", gradients)):
        found = apply_with(name, op, some, tmp_path)
        for (inputs, attributes), (y,) in zip(some, found, strict=True):
            check_all([y], [REFERENCES[op](*inputs, **attributes)], rtol=1e-5)
            np.testing.assert_array_equal(y, apply(op, inputs, attributes)[0])

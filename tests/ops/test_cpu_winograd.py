"""Winograd's algorithm on the CPU: convolution, epilogue, gradients, and what is not finite."""

import os
import subprocess
import sys

import numpy as np
import pytest

from kerascnn import _core

from .reference import REFERENCES

# Images, height, width, channels, filters, padding: tiles of 4 x 4 outputs for four threads, 64 for
# each, whole ones and some that the edges cut. 64 doesn't divide their numbers.
CASES = [
    (17, 16, 16, 32, 48, 1),
    (33, 16, 15, 48, 32, 0),
    (90, 7, 8, 64, 32, 1),
    (257, 4, 4, 128, 64, 1),
    (16, 14, 18, 32, 32, 2),
]


def geometry(pad):
    return {"strides": [1, 1], "dilations": [1, 1], "padding": [pad] * 4, "groups": 1}


def run(op, inputs, attributes):
    tensors = [_core.from_numpy(a.astype(np.float32), "cpu") for a in inputs]
    return _core.apply(op, tensors, attributes)[0].numpy()


def check(found, wanted):
    # Sums of up to 1,152 products of float32 numbers, each of which was a sum before: roundings are
    # one or two 1e-6 of the largest result.
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("activation", ["linear", "relu", "gelu"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution(case, with_bias, activation, rng):
    images, height, width, channels, filters, pad = case
    inputs = [
        rng.normal(size=(images, height, width, channels)),
        rng.normal(size=(3, 3, channels, filters)),
        *([10 * rng.normal(size=filters)] if with_bias else []),
    ]
    attributes = {**geometry(pad), "activation": activation, "activation_alpha": 0.0}
    wanted = REFERENCES["conv2d"](*inputs, **attributes)
    check(run("conv2d", inputs, attributes), wanted)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradient_to_the_input(case, rng):
    images, height, width, channels, filters, pad = case
    upper = rng.normal(size=(images, height + 2 * pad - 2, width + 2 * pad - 2, filters))
    kernel = rng.normal(size=(3, 3, channels, filters))
    attributes = {**geometry(pad), "input_shape": [images, height, width, channels]}
    wanted = REFERENCES["conv2d_dgrad"](upper, kernel, **attributes)
    check(run("conv2d_dgrad", [upper, kernel], attributes), wanted)


@pytest.mark.parametrize("case", [*CASES, (330, 8, 9, 64, 48, 1)], ids=str)
def test_gradient_to_the_kernel(case, rng):
    images, height, width, channels, filters, pad = case
    x = rng.normal(size=(images, height, width, channels))
    upper = rng.normal(size=(images, height + 2 * pad - 2, width + 2 * pad - 2, filters))
    attributes = {**geometry(pad), "kernel_shape": [3, 3, channels, filters]}
    wanted = REFERENCES["conv2d_wgrad"](x, upper, **attributes)
    check(run("conv2d_wgrad", [x, upper], attributes), wanted)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_gradient_to_the_kernel_of_what_is_not_finite(value, rng):
    x = rng.normal(size=(20, 16, 16, 32))
    x[3, 5, 6, 7] = value
    upper = np.abs(rng.normal(size=(20, 16, 16, 48)))
    attributes = {**geometry(1), "kernel_shape": [3, 3, 32, 48]}
    found = run("conv2d_wgrad", [x, upper], attributes)
    wanted = np.zeros(found.shape, bool)
    wanted[:, :, 7] = True
    np.testing.assert_array_equal(~np.isfinite(found), wanted)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_what_is_not_finite_stays_where_it_belongs(value, rng):
    # A tile's transform would spread it over all of its outputs, and 3e38 would overflow in it.
    x = np.abs(rng.normal(size=(20, 16, 16, 32)))
    x[3, 5, 6, 7] = value
    kernel = 0.1 * np.abs(rng.normal(size=(3, 3, 32, 32)))
    attributes = {**geometry(1), "activation": "linear", "activation_alpha": 0.0}
    y = run("conv2d", [x, kernel], attributes)
    inside = np.zeros(y.shape, bool)
    inside[3, 4:7, 5:8] = True
    if value == 3e38:
        assert np.isfinite(y).all() and (y[inside] > 1e30).mean() > 0.9
        assert (y[~inside] < 1e5).all()
    else:
        same = np.isnan(y) if np.isnan(value) else y == value
        np.testing.assert_array_equal(same, inside)


PROGRAM = """
import sys
import numpy as np
from kerascnn import _core

geometry = {"strides": [1, 1], "dilations": [1, 1], "padding": [1] * 4, "groups": 1}
with np.load(sys.argv[1]) as file:
    x, kernel = (_core.from_numpy(file[name], "cpu") for name in ("x", "kernel"))
attributes = {**geometry, "activation": "linear", "activation_alpha": 0.0}
y = _core.apply("conv2d", [x, kernel], attributes)[0].numpy()
np.save(sys.argv[2], y)
"""


@pytest.mark.parametrize("name", ["plain", "avx2", "avx512", "direct"])
def test_vectors_of_every_width_and_without_it(name, rng, tmp_path):
    x = rng.normal(size=(17, 16, 16, 32)).astype(np.float32)
    kernel = rng.normal(size=(3, 3, 32, 48)).astype(np.float32)
    given, found = tmp_path / "given.npz", tmp_path / "found.npy"
    np.savez(given, x=x, kernel=kernel)
    chosen = {"KERASCNN_CPU_WINOGRAD": "0"} if name == "direct" else {"KERASCNN_CPU_ISA": name}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, given, found],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **chosen},
    )
    assert done.returncode == 0, done.stderr
    attributes = {**geometry(1), "activation": "linear", "activation_alpha": 0.0}
    check(np.load(found), REFERENCES["conv2d"](x.astype(float), kernel.astype(float), **attributes))

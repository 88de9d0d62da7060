"""Scales of channels, as batch normalization has them, go into kernels before them."""

from __future__ import annotations

import numpy as np
import pytest

from .helpers import Tracer

PLAIN = {"strides": [1, 1], "padding": [1, 1, 0, 1], "dilations": [1, 1]}
IDENTITY = {"activation": "linear", "activation_alpha": 0.0}


class Net:
    """A convolution (2, 6, 7, 4) to (2, 6, 7, 8), or a product, whose channels are scaled."""

    def __init__(self, rng, base="conv2d", dtype="float32", groups=1):
        self.t, self.rng, self.arrays, self.dtype = Tracer(), rng, [], dtype
        x = self.input(2, 6, 7, 4) if base == "conv2d" else self.input(12, 4)
        shape = (3, 2, 4 // groups, 8) if base == "conv2d" else (4, 8)
        self.base, self.window = base, {**PLAIN, **IDENTITY, "groups": groups}
        self.x, self.kernel = x, self.input(*shape, dtype="float32")

    def input(self, *shape, dtype=None):
        """Adds an input of random numbers."""
        dtype = dtype or self.dtype
        self.arrays.append(self.rng.uniform(-1.5, 1.5, shape).astype("float32"))
        x = self.t.input(shape, "float32", name=f"x{len(self.arrays)}")
        return x if dtype == "float32" else self.t.cast(x, dtype=dtype)

    def convolved(self, *bias):
        t, kernel = self.t, self.kernel
        if self.dtype != "float32":
            kernel = t.cast(kernel, dtype=self.dtype)
        if self.base == "conv2d":
            return t.conv2d(self.x, kernel, *bias, **self.window)
        if self.base == "dense":
            return t.dense(self.x, kernel, *bias, **IDENTITY)
        return t.matmul2(self.x, kernel)

    def normalized(self, y, channels=8):
        """What ops.batch_normalization traces, and its casts in mixed precision."""
        wide = self.t.cast(y, dtype="float32") if self.dtype != "float32" else y
        scale, shift = (self.input(channels, dtype="float32") for _ in range(2))
        y = self.t.add(self.t.multiply(wide, scale), shift)
        return self.t.cast(y, dtype=self.dtype) if self.dtype != "float32" else y

    def ops(self, *outputs):
        """Checks the optimized program against the plain one; returns the ops of the former."""
        # Sums of 24 products of up to 1.5 * 1.5, scaled by up to 1.5, in float32; 16-bit types
        # round kernel, sum and result, by half of the last of their digits each.
        digits = {"float32": 24, "float16": 11, "bfloat16": 8}[self.dtype]
        bound = 24 * 1.5**3 + 1.5**2 + 1.5
        with np.errstate(all="ignore"):
            got = self.t.run([*outputs], self.arrays)
            expected = self.t.run([*outputs], self.arrays, optimize=False)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(
                a.astype("float64"), b.astype("float64"), atol=4 * bound * 2.0**-digits
            )
        return [row["op"] for row in self.t.compile(*outputs).describe()]


def takes_scale(ops, base):
    """One kernel has the convolution or product with everything after it."""
    return ops.count(base) == 1 and ops[-1] == base


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("bias", ["none", "of the call", "added"])
@pytest.mark.parametrize(
    ("base", "groups"), [("conv2d", 1), ("conv2d", 2), ("conv2d", 4), ("dense", 1), ("matmul", 1)]
)
def test_normalization_goes_into_the_kernel(rng, base, groups, bias, dtype):
    if base == "matmul" and bias == "of the call":
        base = "dense"
    net = Net(rng, base, dtype, groups)
    y = net.convolved(net.input(8)) if bias == "of the call" else net.convolved()
    if bias == "added":
        y = net.t.add(y, net.input(8))
    ops = net.ops(net.t.relu(net.normalized(y)))
    # float16 has few digits for small numbers, which scaled kernels may be.
    assert takes_scale(ops, "dense" if base == "matmul" else base) == (dtype != "float16")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sequences_and_volumes_are_reshaped_before_it(rng, dtype):
    net = Net(rng, dtype=dtype)
    y = net.normalized(net.t.reshape(net.convolved(), shape=[2, 42, 8]))
    assert takes_scale(net.ops(net.t.relu(y)), "conv2d")


def test_a_reshape_of_channels_stays_before_it(rng):
    net = Net(rng)
    y = net.normalized(net.t.reshape(net.convolved(), shape=[2, 42, 2, 4]), channels=4)
    assert not takes_scale(net.ops(net.t.relu(y)), "conv2d")


def test_who_else_reads_the_result_still_gets_it(rng):
    net = Net(rng)
    y = net.convolved()
    assert not takes_scale(net.ops(y, net.t.relu(net.normalized(y))), "conv2d")


def test_gradients_of_scale_need_the_result(rng):
    net = Net(rng)
    y = net.convolved()
    scale, shift = (net.input(8) for _ in range(2))
    z = net.t.relu(net.t.add(net.t.multiply(y, scale), shift))
    gradients = net.t.graph.gradients(net.t.sum(z), [net.kernel, scale, shift])
    # Were the kernel scaled, the sums for the gradient of the scale would have nothing to read.
    assert not takes_scale(net.ops(z, *gradients), "conv2d")


def test_a_kernel_larger_than_the_result_is_not_scaled(rng):
    net = Net(rng)
    net.arrays.clear()
    net.t = Tracer()
    net.x, net.kernel = net.input(1, 3, 3, 40), net.input(3, 3, 40, 8)
    net.window["padding"] = [0, 0, 0, 0]
    y = net.t.relu(net.normalized(net.convolved()))
    rows = net.t.compile(y).describe()
    assert [row["op"] for row in rows if row["op"] == "conv2d"] == ["conv2d"]
    assert rows[-1]["op"] != "conv2d"


def test_what_is_not_finite_stays_so(rng):
    """Weights and statistics that are NaN or infinite spoil the same results."""
    net = Net(rng)
    y = net.normalized(net.convolved())
    net.arrays[1][0, 0, 0, 1] = np.nan
    net.arrays[2][3] = np.inf
    net.arrays[3][5] = np.nan
    got = net.t.run([y], net.arrays)[0]
    expected = net.t.run([y], net.arrays, optimize=False)[0]
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected))

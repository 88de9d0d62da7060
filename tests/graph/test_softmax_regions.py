"""Softmax of 16-bit numbers becomes a part of regions, here on a CPU with the limits of a GPU."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from .helpers import Tracer, tensor

pytestmark = pytest.mark.usefixtures("regions")

NARROW = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
# This is one unit in the last place of numbers below 1. Results are rounded once, and the float32
# results before that may lie on different sides of a tie.
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
NAMES = ("softmax", "log_softmax")


def forward(x, name):
    shifted = x - x.max(-1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(-1, keepdims=True))
    return shifted - log_sum if name == "log_softmax" else np.exp(shifted - log_sum)


def backward(g, y, name):
    if name == "log_softmax":
        return g - np.exp(y) * g.sum(-1, keepdims=True)
    return y * (g - (g * y).sum(-1, keepdims=True))


def run(t, outputs, arrays):
    program = t.compile(*outputs)
    program.run([tensor(array, array.dtype) for array in arrays])
    return [output.numpy() for output in program.outputs()], program.to_string()


def regions_of(text):
    return [line for line in text.splitlines() if "reduce_" in line]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (6, 196), (1, 1, 4), (3, 2), (5,), (2, 9000)])
def test_one_region_each(rng, shape, dtype, name):
    x, g = ((rng.standard_normal(shape) * 3).astype(NARROW[dtype]) for _ in range(2))
    t = Tracer()
    y = getattr(t, name)(t.input(shape, dtype), axis=-1)
    (got,), text = run(t, [y], [x])
    expected = forward(x.astype("float64"), name)
    largest = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(got.astype("float64"), expected, atol=ROUNDING[dtype] * largest)
    assert len(regions_of(text)) == 1 and f" {name}" not in text, text

    t = Tracer()
    inputs = t.input(shape, dtype, "g"), t.input(shape, dtype, "y")
    gx = getattr(t, f"{name}_grad")(*inputs, axis=len(shape) - 1)
    (slope,), text = run(t, [gx], [g, got])
    wide = backward(g.astype("float64"), got.astype("float64"), name)
    # The sums of n terms are float32, and the result is rounded too.
    atol = ROUNDING[dtype] * np.abs(wide).max() + shape[-1] * 2.0**-24 * np.abs(g).max() * largest
    np.testing.assert_allclose(slope.astype("float64"), wide, atol=atol)
    assert len(regions_of(text)) == 1 and f"{name}_grad" not in text, text


def test_scale_mask_and_gradient_join(rng):
    shape = (2, 3, 5, 12)
    x, g = (rng.standard_normal(shape).astype(NARROW["bfloat16"]) for _ in range(2))
    keep = rng.integers(0, 2, (2, 1, 5, 12)).astype(bool)
    keep[..., 0] = True
    t = Tracer()
    scores = t.multiply(t.input(shape, "bfloat16"), t.full([], 0.25, "bfloat16"))
    masked = t.where(t.input((2, 1, 5, 12), "bool", "keep"), scores, t.full([], -3e4, "bfloat16"))
    y = t.softmax(masked, axis=-1)
    slope = t.softmax_grad(t.multiply(t.input(shape, "bfloat16", "g"), y), y, axis=-1)
    (got,), text = run(t, [slope], [x, keep, g])
    assert len(regions_of(text)) == 1, text
    assert "multiply+where+cast+reduce_max" in text
    wide = forward(np.where(keep, x.astype("float64") * 0.25, -3e4), "softmax")
    expected = backward(g.astype("float64") * wide, wide, "softmax")
    # y, the product and the result are rounded.
    np.testing.assert_allclose(got.astype("float64"), expected, atol=4 * ROUNDING["bfloat16"])


@pytest.mark.parametrize(
    ("shape", "dtype", "axis"),
    [((4, 6), "float32", -1), ((4, 6), "bfloat16", 0), ((4, 1), "bfloat16", 1)],
)
def test_others_keep_their_kernels(shape, dtype, axis):
    t = Tracer()
    text = t.compile(t.softmax(t.input(shape, dtype), axis=axis)).to_string()
    assert "softmax" in text and "reduce_max" not in text


def test_a_cpu_that_forms_no_regions_keeps_its_kernel(monkeypatch):
    monkeypatch.delenv("KERASCNN_CPU_REGIONS")
    t = Tracer()
    text = t.compile(t.softmax(t.input((4, 6), "bfloat16"), axis=-1)).to_string()
    assert "softmax" in text and "reduce_max" not in text

"""Gradients of dilated convolutions to their kernels, which a CPU may compute by phases.

All numbers are small multiples of 1/8, so that sums are exact in whatever order.
"""

import numpy as np
import pytest

from .reference import REFERENCES
from .test_cpu_vectors import apply

# Images, kernel, dilations, padding as top, bottom, left, right.
CONVOLUTIONS = {
    "whole phases": ((3, 12, 16, 20), (3, 3, 20, 16), (2, 2), (2, 2, 2, 2)),
    "phases of two sizes": ((2, 13, 11, 16), (3, 3, 16, 24), (3, 2), (3, 3, 2, 2)),
    "no padding": ((2, 14, 15, 9), (2, 3, 9, 5), (4, 2), (0, 0, 0, 0)),
    "one row, in the past": ((5, 1, 37, 16), (1, 2, 16, 32), (1, 8), (0, 0, 8, 0)),
    "few filters": ((2, 16, 12, 32), (3, 3, 32, 3), (4, 4), (4, 4, 4, 4)),
    "padding between phases": ((2, 12, 12, 8), (3, 3, 8, 8), (2, 2), (1, 3, 3, 1)),
    "padding beyond the image": ((2, 6, 5, 16), (3, 3, 16, 8), (2, 2), (8, 8, 6, 8)),
    "as far apart as the image": ((2, 9, 9, 16), (3, 3, 16, 8), (4, 4), (4, 4, 4, 4)),
    "many images": ((64, 8, 8, 32), (3, 3, 32, 32), (2, 2), (2, 2, 2, 2)),
}


def call(case, rng):
    images, kernel, dilations, padding = CONVOLUTIONS[case]
    sizes = [
        images[1 + axis]
        + sum(padding[2 * axis : 2 * axis + 2])
        - (kernel[axis] - 1) * dilations[axis]
        for axis in (0, 1)
    ]
    attributes = {
        "strides": [1, 1],
        "dilations": list(dilations),
        "padding": list(padding),
        "groups": 1,
        "kernel_shape": list(kernel),
    }
    shapes = images, (images[0], *sizes, kernel[3])
    return [rng.integers(-8, 9, shape) / 8 for shape in shapes], attributes


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_dilated_gradients_are_exact(case, rng, monkeypatch):
    monkeypatch.setenv("KERASCNN_CPU_WINOGRAD", "0")  # its transforms round
    inputs, attributes = call(case, rng)
    (found,) = apply("conv2d_wgrad", inputs, attributes)
    np.testing.assert_array_equal(found, REFERENCES["conv2d_wgrad"](*inputs, **attributes))


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize(
    ("case", "argument"),
    # oneDNN's kernel, which computes phases of two sizes then, multiplies gradients with padding.
    [("whole phases", 0), ("whole phases", 1), ("phases of two sizes", 0)],
)
def test_what_is_not_finite_stays_in_its_sums(case, argument, bad, rng):
    (x, gy), attributes = call(case, rng)
    # At the border a pixel meets only some taps, and the last phase has one row and column fewer.
    marks = [np.zeros(x.shape), np.ones(gy.shape)]
    if argument == 1:
        marks = [np.ones(x.shape), np.zeros(gy.shape)]
    at = (1, gy.shape[1] - 1, gy.shape[2] - 1, 5)
    marks[argument][at] = 1
    reached = REFERENCES["conv2d_wgrad"](*marks, **attributes) > 0
    assert reached.any() and not reached.all()
    for values in (x, gy):
        values[values == 0] = 1
    wanted = REFERENCES["conv2d_wgrad"](x, gy, **attributes)
    (x, gy)[argument][at] = bad
    (found,) = apply("conv2d_wgrad", [x, gy], attributes)
    np.testing.assert_array_equal(np.isfinite(found), ~reached)
    np.testing.assert_array_equal(found[~reached], wanted[~reached])

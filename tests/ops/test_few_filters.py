"""The CPU's convolutions with few filters, forward and to the kernel, in every vector width.

All numbers are small multiples of 1/8, so that sums are exact in whatever order.
"""

import numpy as np
import pytest

from kerascnn import _core

from .reference import REFERENCES
from .test_cpu_vectors import INSTRUCTION_SETS, apply, apply_with

# Images, kernel, strides, dilations, padding as top, bottom, left, right.
CONVOLUTIONS = {
    "one filter": ((2, 9, 11, 16), (3, 3, 16, 1), (1, 1), (1, 1), (1, 1, 1, 1)),
    "two filters": ((3, 6, 25, 19), (1, 1, 19, 2), (1, 1), (1, 1), (0, 0, 0, 0)),
    "three filters": ((2, 8, 13, 37), (5, 3, 37, 3), (1, 1), (1, 1), (2, 2, 1, 1)),
    "four filters": ((1, 7, 10, 32), (3, 5, 32, 4), (1, 1), (1, 1), (0, 2, 4, 1)),
    "five filters": ((5, 5, 6, 17), (2, 2, 17, 5), (1, 1), (1, 1), (1, 0, 0, 1)),
    "seven filters": ((2, 8, 9, 24), (3, 3, 24, 7), (1, 1), (1, 1), (2, 2, 2, 2)),
    "strides": ((2, 12, 17, 21), (3, 4, 21, 3), (2, 3), (1, 1), (1, 1, 2, 1)),
    "rows apart": ((2, 11, 9, 18), (3, 3, 18, 2), (1, 1), (3, 1), (3, 3, 1, 1)),
    "few channels": ((2, 7, 9, 4), (3, 5, 4, 3), (1, 1), (1, 1), (1, 1, 2, 2)),
    "padding beyond the image": ((2, 2, 3, 16), (3, 3, 16, 2), (1, 1), (1, 1), (5, 4, 6, 5)),
    "a kernel as wide as the image": ((1, 4, 6, 16), (3, 6, 16, 6), (1, 1), (1, 1), (0, 0, 0, 0)),
}


def outputs(case):
    images, kernel, strides, dilations, padding = CONVOLUTIONS[case]
    sizes = []
    for axis in (0, 1):
        room = images[1 + axis] + sum(padding[2 * axis : 2 * axis + 2])
        sizes.append((room - (kernel[axis] - 1) * dilations[axis] - 1) // strides[axis] + 1)
    return (images[0], *sizes, kernel[3])


def call(op, case, rng):
    images, kernel, strides, dilations, padding = CONVOLUTIONS[case]
    attributes = {
        "strides": list(strides),
        "dilations": list(dilations),
        "padding": list(padding),
        "groups": 1,
    }

    def numbers(*shape):
        return rng.integers(-8, 9, shape) / 8

    if op == "conv2d_wgrad":
        attributes["kernel_shape"] = list(kernel)
        return [numbers(*images), numbers(*outputs(case))], attributes
    more = {"activation": "relu", "activation_alpha": 0.0}
    return [numbers(*images), numbers(*kernel), numbers(kernel[3])], {**attributes, **more}


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
@pytest.mark.parametrize("op", ["conv2d", "conv2d_wgrad"])
def test_few_filters_are_exact(op, name, rng, tmp_path, monkeypatch):
    monkeypatch.setenv("KERASCNN_CPU_WINOGRAD", "0")  # its transforms round
    calls = [call(op, case, rng) for case in CONVOLUTIONS]
    for case, (inputs, attributes), (found,) in zip(
        CONVOLUTIONS, calls, apply_with(name, op, calls, tmp_path), strict=True
    ):
        np.testing.assert_array_equal(
            found, REFERENCES[op](*inputs, **attributes), err_msg=f"{case}, {name}"
        )


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize("case", ["three filters", "seven filters", "few channels"])
def test_what_is_not_finite_stays_in_its_patches(case, bad, rng):
    (x, kernel, bias), attributes = call("conv2d", case, rng)
    kernel[kernel == 0] = 1
    attributes["activation"] = "linear"
    at = (0, 0, x.shape[2] - 1, x.shape[3] - 1)
    (finite,) = apply("conv2d", [x, kernel, bias], attributes)
    x[at] = bad
    (found,) = apply("conv2d", [x, kernel, bias], attributes)
    marks = np.zeros(x.shape)
    marks[at] = 1
    reached = REFERENCES["conv2d"](marks, np.ones(kernel.shape), 0 * bias, **attributes) > 0
    assert not np.isfinite(found[reached]).any()
    np.testing.assert_array_equal(found[~reached], finite[~reached])


@pytest.mark.parametrize(
    ("filters", "channels", "groups", "is_own"),
    [(3, 16, 1, True), (7, 6, 1, True), (8, 16, 1, False), (4, 16, 4, False), (3, 5, 1, False)],
)
def test_which_convolutions_they_take(filters, channels, groups, is_own):
    graph = _core.Graph()
    shapes = [(2, 9, 9, channels), (3, 3, channels // groups, filters)]
    values = [graph.input("x", shape, "float32") for shape in shapes]
    attributes = {
        "strides": [1, 1],
        "dilations": [1, 1],
        "padding": [1] * 4,
        "groups": groups,
        "activation": "linear",
        "activation_alpha": 0.0,
    }
    outputs = graph.apply("conv2d", values, attributes)
    (found,) = _core.Program.compile(graph, outputs, "cpu").describe()
    assert found["kernel"].startswith("kerascnn conv2d:") == is_own

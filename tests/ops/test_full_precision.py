"""Convolutions of usual sizes keep full float32 precision.

Libraries choose other algorithms for them than for small shapes, and some of these keep few digits.
"""

from typing import Any

import numpy as np
import pytest

from kerascnn import _core

from .harness import tf32_off
from .reference import REFERENCES

# (images, kernel, padding)
SHAPES = [
    ((64, 12, 12, 32), (5, 5, 32, 64), 0),
    ((32, 13, 14, 32), (3, 3, 32, 48), 1),
    ((8, 12, 12, 64), (5, 5, 64, 128), 2),
    ((96, 32, 31, 3), (3, 3, 3, 64), 1),  # a first layer
]


@pytest.mark.parametrize("op", ["conv2d", "conv2d_dgrad", "conv2d_wgrad"])
@pytest.mark.parametrize("images, kernel, padding", SHAPES)
def test_convolutions_keep_float32_digits_without_tf32(op, images, kernel, padding, device, rng):
    height, width = (images[i] + 2 * padding - kernel[i - 1] + 1 for i in (1, 2))
    x = rng.normal(size=images).astype("float32")
    w = rng.normal(size=kernel).astype("float32")
    gy = rng.normal(size=(images[0], height, width, kernel[3])).astype("float32")
    attributes: dict[str, Any] = {
        "strides": [1, 1],
        "padding": [padding] * 4,
        "dilations": [1, 1],
        "groups": 1,
    }
    if op == "conv2d":
        inputs = [x, w]
        attributes |= {"activation": "linear", "activation_alpha": 0.0}
    elif op == "conv2d_dgrad":
        inputs = [gy, w]
        attributes["input_shape"] = list(images)
    else:
        inputs = [x, gy]
        attributes["kernel_shape"] = list(kernel)
    wanted = REFERENCES[op](*(a.astype("float64") for a in inputs), **attributes)
    with tf32_off():
        tensors = [_core.from_numpy(a, device) for a in inputs]
        result = _core.apply(op, tensors, attributes)[0].numpy()
    # A result adds up to 3,200 products, or 95,000 for an element of a kernel. The float32 rounding
    # of 6e-8 then leaves about 1e-6 of the largest result; TF32 would leave 1e-3.
    np.testing.assert_allclose(result, wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())

"""The ends of products: bias and activation, at sizes that leave rows, packs and rounds uneven."""

from __future__ import annotations

import numpy as np
import pytest

from kerascnn import _core

from .case import FLOATS, TOLERANCE
from .harness import to_device
from .reference import activate, numpy_dtype

# (rows, columns). On a GPU a thread takes 16 bytes at a time and goes on by whole rows, in several
# rounds above some million elements. There are fewer elements than a thread takes, columns that
# share no factor with that, more columns than threads, and last rounds that are not whole.
SIZES = [
    (1, 1),
    (1, 3),
    (3, 5),
    (7, 8),
    (33, 10),
    (301, 24),
    (129, 1000),
    (3, 600_011),
    (40_013, 67),
]
SIZES += [(9_001, 384)]
ACTIVATIONS = {"linear": 0.0, "relu": 0.0, "gelu": 0.0, "elu": 0.5}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_each_element_gets_its_bias_and_activation_once(size, activation, dtype, device, rng):
    """A product without terms leaves bias and activation, so that columns are told apart."""
    rows, columns = size
    bias = rng.normal(size=columns).astype(numpy_dtype(dtype))
    inputs = [np.zeros((rows, 0), bias.dtype), np.zeros((0, columns), bias.dtype), bias]
    values = {"activation": activation, "activation_alpha": ACTIVATIONS[activation]}
    [found] = _core.apply("dense", to_device(inputs, device), values)
    found = np.array(found.numpy())
    row = activate(bias.astype(np.float64), activation, ACTIVATIONS[activation])
    # Every row has the same bits, and these are those of the reference to its rounding.
    np.testing.assert_array_equal(found, np.broadcast_to(found[:1], size))
    np.testing.assert_allclose(
        found[0].astype(np.float64), row, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] / 100
    )

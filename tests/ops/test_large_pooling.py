"""Pooling of tensors so large that GPUs use kernels for 16 bytes of channels and known windows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kerascnn import _core

from .case import FLOATS
from .harness import to_device
from .reference import REFERENCES, numpy_dtype

SAME, AFTER, LOPSIDED, VALID = (1, 1, 1, 1), (0, 1, 0, 1), (1, 0, 0, 1), (0, 0, 0, 0)
# (images, window, strides, padding). On a GPU those above 2^20 elements whose channels are a
# multiple of 16 bytes have kernels of their own; the others come close to them.
POOLS = {
    "halves": ((5, 57, 61, 64), (2, 2), (2, 2), VALID),
    "halves_padded": ((5, 57, 61, 64), (2, 2), (2, 2), AFTER),
    "halves_lopsided": ((5, 56, 61, 64), (2, 2), (2, 2), LOPSIDED),
    "overlapping": ((9, 43, 46, 64), (3, 3), (2, 2), VALID),
    "overlapping_same": ((9, 43, 46, 64), (3, 3), (2, 2), SAME),
    "overlapping_after": ((9, 46, 43, 64), (3, 3), (2, 2), AFTER),
    "dense": ((3, 75, 77, 64), (3, 3), (1, 1), SAME),
    "neighbours": ((3, 75, 77, 64), (2, 2), (1, 1), AFTER),
    "thirds": ((3, 82, 77, 64), (3, 3), (3, 3), VALID),
    "sparse": ((3, 82, 77, 64), (2, 2), (3, 4), VALID),
    "many_channels": ((2, 19, 18, 1608), (2, 2), (2, 2), VALID),
    "four_channels": ((40, 93, 81, 4), (3, 3), (2, 2), SAME),
    "twelve_channels": ((17, 83, 71, 12), (2, 2), (2, 2), VALID),
    "odd_channels": ((9, 61, 58, 35), (2, 2), (2, 2), VALID),
    "one_channel": ((301, 61, 58, 1), (3, 3), (2, 2), SAME),
}


def call(op: str, inputs: list[np.ndarray], values: dict[str, Any], device: str):
    return [np.array(y.numpy()) for y in _core.apply(op, to_device(inputs, device), values)]


def make_attributes(window, strides, padding) -> dict[str, Any]:
    return {"window": list(window), "strides": list(strides), "padding": list(padding)}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", POOLS)
def test_max_pooling_is_exact(name, dtype, device, rng):
    """Many elements are equal, so that places of maxima count too. Sums are small integers."""
    images, *geometry = POOLS[name]
    attributes = make_attributes(*geometry)
    x = rng.integers(-3, 4, images).astype(numpy_dtype(dtype))
    y, places = REFERENCES["max_pool2d"](x.astype(np.float32), **attributes)
    found, found_places = call("max_pool2d", [x], attributes, device)
    np.testing.assert_array_equal(found.astype(np.float32), y)
    np.testing.assert_array_equal(found_places, places)

    gy = rng.integers(-8, 9, y.shape).astype(numpy_dtype(dtype))
    attributes |= {"input_shape": list(images)}
    wanted = REFERENCES["max_pool2d_grad"](gy.astype(np.float32), places, **attributes)
    (found,) = call("max_pool2d_grad", [gy, places], attributes, device)
    np.testing.assert_array_equal(found.astype(np.float32), wanted)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", POOLS)
def test_average_pooling(name, dtype, device, rng):
    """Sums of integers are exact. A window's mean is rounded by its division, a gradient also by up
    to nine additions; both once more to the dtype."""
    images, *geometry = POOLS[name]
    attributes = make_attributes(*geometry)
    eps = float(ml_dtypes.finfo(numpy_dtype(dtype)).eps)
    arithmetic = max(float(np.finfo(np.float32).eps), eps) if dtype != "float64" else eps
    x = rng.integers(-8, 9, images).astype(numpy_dtype(dtype))
    wanted = REFERENCES["avg_pool2d"](x.astype(np.float64), **attributes)
    (found,) = call("avg_pool2d", [x], attributes, device)
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2 * arithmetic, atol=0)

    gy = rng.integers(-8, 9, wanted.shape).astype(numpy_dtype(dtype))
    attributes |= {"input_shape": list(images)}
    wanted = REFERENCES["avg_pool2d_grad"](gy.astype(np.float64), **attributes)
    (found,) = call("avg_pool2d_grad", [gy], attributes, device)
    # Terms of up to 8 cancel, so errors are relative to them and not to the sum.
    largest = REFERENCES["avg_pool2d_grad"](np.abs(gy.astype(np.float64)), **attributes).max()
    np.testing.assert_allclose(
        found.astype(np.float64), wanted, rtol=2 * arithmetic, atol=10 * arithmetic * largest
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["halves_padded", "overlapping_same", "dense", "odd_channels"])
def test_not_numbers(name, dtype, device, rng):
    images, *geometry = POOLS[name]
    attributes = make_attributes(*geometry)
    x = rng.integers(-3, 4, images).astype(np.float32)
    x[rng.random(images) < 0.1] = np.nan
    x[rng.random(images) < 0.6] = -np.inf
    wanted = REFERENCES["max_pool2d"](x, **attributes)
    y, places = call("max_pool2d", [x.astype(numpy_dtype(dtype))], attributes, device)
    np.testing.assert_array_equal(y.astype(np.float32), wanted[0])
    np.testing.assert_array_equal(places, wanted[1])


@pytest.mark.parametrize("op", ["max_pool2d", "avg_pool2d"])
@pytest.mark.parametrize("name", ["overlapping_same", "dense"])
def test_the_same_input_gives_the_same_bits(op, name, device, rng):
    images, *geometry = POOLS[name]
    attributes = make_attributes(*geometry)
    x = rng.standard_normal(images, np.float32)
    y, *places = call(op, [x], attributes, device)
    gy = rng.standard_normal(y.shape, np.float32)
    with_shape = attributes | {"input_shape": list(images)}
    (gx,) = call(f"{op}_grad", [gy, *places], with_shape, device)
    for _ in range(2):
        np.testing.assert_array_equal(call(op, [x], attributes, device)[0], y)
        again = call(f"{op}_grad", [gy, *places], with_shape, device)[0]
        np.testing.assert_array_equal(again, gx)

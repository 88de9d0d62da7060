"""Derivatives above the second, of the functions that a classifier of images consists of."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import ops


def probabilities(rng):
    labels = ops.convert_to_tensor(rng.integers(0, 4, 5))
    return lambda x: ops.square(ops.sparse_categorical_crossentropy(labels, ops.exp(x))), (5, 4)


def logits(rng):
    labels = ops.convert_to_tensor(rng.integers(0, 4, 5))

    def loss(x):
        return ops.square(ops.sparse_categorical_crossentropy(labels, x, from_logits=True))

    return loss, (5, 4)


def normalized(rng):
    layer = keras.layers.BatchNormalization(dtype="float64")
    layer.build((7, 4))
    weights = ops.convert_to_tensor(rng.standard_normal((7, 4)))
    return lambda x: ops.tanh(layer(x, training=True)) * weights, (7, 4)


def pooled(rng):
    layer = keras.layers.MaxPooling2D((2, 3), strides=1, padding="same", dtype="float64")
    return lambda x: ops.sin(layer(x)), (1, 4, 5, 2)


def along(function, direction):
    """Returns the derivative of a function's sum along a direction, as a function."""
    slope = keras.grad(lambda x: ops.sum(function(x)))
    return lambda x: ops.sum(slope(x) * direction)


@pytest.mark.parametrize("make", [probabilities, logits, normalized, pooled])
def test_the_third_derivative(make, rng):
    function, shape = make(rng)
    # No two numbers are nearer than 0.1, so that the steps below change no maximum.
    size = int(np.prod(shape))
    x = 0.1 * (rng.permutation(size) - size / 2).reshape(shape)
    directions = rng.standard_normal((3, *shape))
    second = along(along(function, directions[0]), directions[1])
    third = along(second, directions[2])
    found = float(third(ops.convert_to_tensor(x)))
    compiled = float(keras.jit(third)(ops.convert_to_tensor(x)))
    step = 1e-3

    def at(t):
        return float(second(ops.convert_to_tensor(x + t * step * directions[2])))

    # The formula has order four. It leaves 1e-12 of higher derivatives, and 1e-16 / 1e-3 of
    # rounding.
    numerical = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
    scale = abs(numerical) + abs(at(0)) + 1
    assert abs(found - numerical) < 1e-6 * scale
    assert abs(compiled - found) < 1e-10 * scale

"""Activation functions on tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.ops import dispatch, elementwise, reduction, shaping
from kerascnn.symbolic.operation import op

__all__ = [
    "celu",
    "clipped_relu",
    "elu",
    "gelu",
    "glu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_shrink",
    "softmax",
    "softplus",
    "softsign",
    "sparse_plus",
    "sparse_sigmoid",
    "sparsemax",
    "squareplus",
    "swish",
    "tanh_shrink",
    "threshold",
]

# These constants are from Klambauer et al., "Self-Normalizing Neural Networks", 2017.
_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


def _activation(name: str, x: Any, attributes: dispatch.Attributes | None = None) -> Any:
    x = dispatch.convert(x)
    if not dtypes.is_float(x.dtype):
        x = dispatch.convert(x, dtypes.float_result_type(x.dtype))
    return dispatch.apply_one(name, [x], attributes)


@dispatch.at_once("relu")
@op
def relu(x: Any) -> Any:
    """max(x, 0).

    Example:

    >>> from kerascnn import ops
    >>> ops.relu([-1.0, 2.0]).numpy().tolist()
    [0.0, 2.0]
    """
    return _activation("relu", x)


@op
def clipped_relu(x: Any, max_value: float) -> Any:
    """min(max(x, 0), max_value)."""
    return _activation("clipped_relu", x, {"max_value": float(max_value)})


@op
def relu6(x: Any) -> Any:
    """min(max(x, 0), 6)."""
    return _activation("clipped_relu", x, {"max_value": 6.0})


@op
def leaky_relu(x: Any, negative_slope: float = 0.2) -> Any:
    """x where it is positive, else negative_slope * x."""
    return _activation("leaky_relu", x, {"negative_slope": float(negative_slope)})


@op
def elu(x: Any, alpha: float = 1.0) -> Any:
    """x where it is positive, else alpha * (exp(x) - 1)."""
    return _activation("elu", x, {"alpha": float(alpha)})


@op
def selu(x: Any) -> Any:
    """An elu scaled so that mean 0 and variance 1 carry through the layers."""
    return elementwise.multiply(_activation("elu", x, {"alpha": _SELU_ALPHA}), _SELU_SCALE)


@op
def celu(x: Any, alpha: float = 1.0) -> Any:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))."""
    scaled = _activation("elu", elementwise.divide(x, alpha), {"alpha": 1.0})
    return elementwise.multiply(scaled, alpha)


@op
def gelu(x: Any, approximate: bool = True) -> Any:
    """x times the normal distribution function of x, or its approximation by tanh."""
    return _activation("gelu", x, {"approximate": bool(approximate)})


@op
def silu(x: Any) -> Any:
    """x * sigmoid(x), also called swish."""
    return _activation("silu", x)


def swish(x: Any) -> Any:
    """The same as `silu`."""
    return silu(x)


@dispatch.at_once("sigmoid")
@op
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return _activation("sigmoid", x)


@op
def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    return _activation("softplus", x)


@op
def softsign(x: Any) -> Any:
    """x / (1 + |x|)."""
    return elementwise.divide(x, elementwise.add(elementwise.absolute(x), 1))


@op
def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)), exact for large negative x."""
    return elementwise.negative(softplus(elementwise.negative(x)))


@op
def hard_sigmoid(x: Any) -> Any:
    """x / 6 + 1/2, cut to [0, 1]."""
    return elementwise.divide(relu6(elementwise.add(x, 3)), 6)


@op
def hard_silu(x: Any) -> Any:
    """x * hard_sigmoid(x)."""
    return elementwise.multiply(x, hard_sigmoid(x))


def hard_swish(x: Any) -> Any:
    """The same as `hard_silu`."""
    return hard_silu(x)


@op
def hard_tanh(x: Any) -> Any:
    """x, cut to [-1, 1]."""
    return elementwise.clip(x, -1.0, 1.0)


@op
def mish(x: Any) -> Any:
    """x * tanh(softplus(x))."""
    return elementwise.multiply(x, elementwise.tanh(softplus(x)))


@op
def glu(x: Any, axis: int = -1) -> Any:
    """The first half along an axis, times the sigmoid of the second half.

    Args:
        x: Input; its size along `axis` must be even.
        axis: The axis that is halved.

    Raises:
        ValueError: where the axis does not exist or has an odd size.

    Source: Dauphin et al., "Language Modeling with Gated Convolutional Networks", 2017.
    """
    x = dispatch.convert(x)
    rank = len(x.shape)
    if not -rank <= axis < rank or x.shape[axis] % 2:
        raise ValueError(
            f"glu: axis {axis} must exist and have an even size. Received: shape={tuple(x.shape)}"
        )
    values, gates = shaping.split(x, 2, axis)
    return elementwise.multiply(values, sigmoid(gates))


@op
def hard_shrink(x: Any, threshold: float = 0.5) -> Any:
    """x where its absolute value is above the threshold, else 0."""
    x = _floating(x)
    return elementwise.where(elementwise.greater(elementwise.absolute(x), threshold), x, 0.0)


@op
def soft_shrink(x: Any, threshold: float = 0.5) -> Any:
    """x moved towards 0 by the threshold, and 0 where it would go beyond."""
    x = _floating(x)
    up, down = elementwise.subtract(x, threshold), elementwise.add(x, threshold)
    return elementwise.where(
        elementwise.greater(x, threshold),
        up,
        elementwise.where(elementwise.less(x, -threshold), down, 0.0),
    )


@op
def tanh_shrink(x: Any) -> Any:
    """x - tanh(x)."""
    x = _floating(x)
    return elementwise.subtract(x, elementwise.tanh(x))


@op
def threshold(x: Any, threshold: float, default_value: float) -> Any:
    """x where it is above the threshold, else the default value."""
    x = dispatch.convert(x)
    return elementwise.where(elementwise.greater(x, threshold), x, default_value)


@op
def squareplus(x: Any, b: float = 4) -> Any:
    """(x + sqrt(x * x + b)) / 2, a smooth relu. Source: Barron, 2021."""
    x = _floating(x)
    root = elementwise.sqrt(elementwise.add(elementwise.square(x), b))
    return elementwise.divide(elementwise.add(x, root), 2)


@op
def sparse_plus(x: Any) -> Any:
    """0 up to -1, (x + 1)^2 / 4 up to 1, and x above."""
    x = _floating(x)
    curve = elementwise.multiply(elementwise.square(elementwise.add(x, 1)), 0.25)
    rising = elementwise.where(elementwise.less(x, 1), curve, x)
    return elementwise.where(elementwise.less_equal(x, -1), 0.0, rising)


@op
def sparse_sigmoid(x: Any) -> Any:
    """(x + 1) / 2, cut to [0, 1]."""
    x = _floating(x)
    line = elementwise.multiply(elementwise.add(x, 1), 0.5)
    rising = elementwise.where(elementwise.greater_equal(x, 1), 1.0, line)
    return elementwise.where(elementwise.less_equal(x, -1), 0.0, rising)


@op
def sparsemax(x: Any, axis: int = -1) -> Any:
    """Scores cut off at a threshold of their own, so that small ones get exactly 0.

    With the k largest scores z_1 >= ... >= z_k that the paper gives a share, this is
    max(x - t, 0) where t = (z_1 + (z_1 + z_2) + ... + (z_1 + ... + z_k) - 1) / k. That is how Keras
    computes it; the paper's t has the last of these sums only, which is the same where k is 1.

    Args:
        x: Scores.
        axis: The axis that they are compared along, each with each other: the work grows with the
            square of its size.

    Source: Martins and Astudillo, "From Softmax to Sparsemax", 2016.

    Example:

    >>> from kerascnn import ops
    >>> ops.sparsemax([3.0, 0.5, -2.0]).numpy().tolist()
    [1.0, 0.0, 0.0]
    """
    x = _floating(x)
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise ValueError(
            f"sparsemax: axis {axis} does not exist in a tensor of shape {tuple(x.shape)}"
        )
    scores = shaping.moveaxis(x, axis, -1)
    own, others = shaping.expand_dims(scores, -1), shaping.expand_dims(scores, -2)
    ahead = dispatch.convert(elementwise.greater_equal(others, own), x.dtype)
    above = dispatch.convert(elementwise.greater(others, own), x.dtype)
    count, before = reduction.sum(ahead, -1), reduction.sum(above, -1)
    total = reduction.sum(elementwise.multiply(ahead, others), -1)
    # A score gets a share if the scores that are not below it leave something for it.
    shares = elementwise.greater(elementwise.add(elementwise.multiply(scores, count), 1.0), total)
    size = reduction.sum(dispatch.convert(shares, x.dtype), -1, keepdims=True)
    # Places count from 1 in descending order, and equal scores share their mean place. The place
    # tells in how many sums a score is.
    place = elementwise.multiply(elementwise.add(elementwise.add(count, before), 1.0), 0.5)
    times = elementwise.subtract(elementwise.add(size, 1.0), place)
    sums = elementwise.where(shares, elementwise.multiply(scores, times), 0.0)
    surplus = elementwise.subtract(reduction.sum(sums, -1, keepdims=True), 1.0)
    result = relu(elementwise.subtract(scores, elementwise.divide(surplus, size)))
    return shaping.moveaxis(result, -1, axis)


def _floating(x: Any) -> Any:
    x = dispatch.convert(x)
    return x if dtypes.is_float(x.dtype) else dispatch.convert(x, dtypes.float_result_type(x.dtype))


@op
def softmax(x: Any, axis: Any = -1) -> Any:
    """exp(x) divided by its sum along an axis (several axes, or all for None).

    Example:

    >>> from kerascnn import ops
    >>> ops.softmax([0.0, 0.0]).numpy().tolist()
    [0.5, 0.5]
    """
    return _along("softmax", x, axis)


@op
def log_softmax(x: Any, axis: Any = -1) -> Any:
    """The logarithm of `softmax`, exact where that is close to 0."""
    return _along("log_softmax", x, axis)


def _along(name: str, x: Any, axis: Any) -> Any:
    x = dispatch.convert(x)
    rank = len(x.shape)
    if isinstance(axis, int):
        if not -rank <= axis < rank:
            raise ValueError(
                f"{name}: axis {axis} does not exist in a tensor of shape {tuple(x.shape)}"
            )
        return _activation(name, x, {"axis": axis % rank})
    # Several axes become one at the end of the shape.
    axes = list(range(rank)) if axis is None else sorted(a % rank for a in axis)
    order = [a for a in range(rank) if a not in axes] + axes
    moved = shaping.transpose(x, order)
    kept = tuple(moved.shape[: rank - len(axes)])
    flat = shaping.reshape(moved, (*kept, int(np.prod(moved.shape[len(kept) :], dtype=np.int64))))
    result = shaping.reshape(_activation(name, flat, {"axis": len(kept)}), tuple(moved.shape))
    return shaping.transpose(result, np.argsort(order).tolist())

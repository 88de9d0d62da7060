"""Activation functions on tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.ops import dispatch, elementwise, shaping
from kerascnn.symbolic.operation import op

# The two constants of Klambauer et al., "Self-Normalizing Neural Networks", 2017.
_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


def _activation(name: str, x: Any, attributes: dispatch.Attributes | None = None) -> Any:
    x = dispatch.convert(x)
    if not dtypes.is_float(x.dtype):
        x = dispatch.convert(x, dtypes.float_result_type(x.dtype))
    return dispatch.apply_one(name, [x], attributes)


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
    # Several axes become one, at the end.
    axes = list(range(rank)) if axis is None else sorted(a % rank for a in axis)
    order = [a for a in range(rank) if a not in axes] + axes
    moved = shaping.transpose(x, order)
    kept = tuple(moved.shape[: rank - len(axes)])
    flat = shaping.reshape(moved, (*kept, int(np.prod(moved.shape[len(kept) :], dtype=np.int64))))
    result = shaping.reshape(_activation(name, flat, {"axis": len(kept)}), tuple(moved.shape))
    return shaping.transpose(result, np.argsort(order).tolist())

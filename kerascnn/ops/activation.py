"""Activation functions on tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import _core, tracing
from kerascnn.ops import dispatch, elementwise, joining, reduction, shaping
from kerascnn.symbolic.operation import op

__all__ = [
    "celu",
    "clipped_relu",
    "elu",
    "gelu",
    "glu",
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
    "softmax",
    "softplus",
    "softsign",
    "swish",
]

# These constants are from Klambauer et al., "Self-Normalizing Neural Networks", 2017.
_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


def _activation(name: str, x: Any, attributes: dispatch.Attributes | None = None) -> Any:
    x = dispatch.convert_floating(x)
    return dispatch.apply_one(name, [x], attributes)


def _noted(name: str, result: Any) -> Any:
    """Lets the trace know what gave a value, for losses that are told that it holds logits."""
    trace = tracing.current()
    if trace is not None and isinstance(result, _core.Value):
        trace.probabilities[result.id] = name
    return result


@dispatch.at_once("relu")
@op
def relu(x: Any) -> Any:
    """max(x, 0); NaN stays NaN.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.relu([-1.0, 2.0]).numpy().tolist()
    [0.0, 2.0]
    """
    return _activation("relu", x)


@op
def clipped_relu(x: Any, max_value: float) -> Any:
    """min(max(x, 0), max_value).

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        max_value: The highest result, a Python number.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.clipped_relu([-1.0, 0.5, 4.0], 2.0).numpy().tolist()
    [0.0, 0.5, 2.0]
    """
    return _activation("clipped_relu", x, {"max_value": float(max_value)})


@op
def relu6(x: Any) -> Any:
    """min(max(x, 0), 6).

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Krizhevsky, "Convolutional Deep Belief Networks on CIFAR-10", 2010.

    Example:

    >>> from kerascnn import ops
    >>> ops.relu6([-1.0, 3.0, 8.0]).numpy().tolist()
    [0.0, 3.0, 6.0]
    """
    return _activation("clipped_relu", x, {"max_value": 6.0})


@op
def leaky_relu(x: Any, negative_slope: float = 0.2) -> Any:
    """x where it is positive, else negative_slope * x.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        negative_slope: The slope below 0, a Python number.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Maas et al., "Rectifier Nonlinearities Improve Neural Network Acoustic Models", 2013.

    Example:

    >>> from kerascnn import ops
    >>> ops.leaky_relu([-2.0, 3.0], negative_slope=0.5).numpy().tolist()
    [-1.0, 3.0]
    """
    return _activation("leaky_relu", x, {"negative_slope": float(negative_slope)})


@op
def elu(x: Any, alpha: float = 1.0) -> Any:
    """x where it is positive, else alpha * (exp(x) - 1).

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        alpha: The results approach -alpha for low x; a Python number.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Clevert et al., "Fast and Accurate Deep Network Learning by Exponential Linear Units",
    2016.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.elu([-1.0, 2.0]).numpy().round(3))
    [-0.632  2.   ]
    """
    return _activation("elu", x, {"alpha": float(alpha)})


@op
def selu(x: Any) -> Any:
    """An elu scaled so that mean 0 and variance 1 carry through the layers.

    With the paper's constants it is 1.0507 x where x is positive, else 1.0507 * 1.6733 * (exp(x) -
    1).

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.selu([-1.0, 0.0, 2.0]).numpy().round(3))
    [-1.111  0.     2.101]
    """
    return elementwise.multiply(_activation("elu", x, {"alpha": _SELU_ALPHA}), _SELU_SCALE)


@op
def celu(x: Any, alpha: float = 1.0) -> Any:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)), whose slope has no jump at 0.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        alpha: The results approach -alpha for low x; a number other than 0.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Barron, "Continuously Differentiable Exponential Linear Units", 2017.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.celu([-1.0, 2.0], alpha=0.5).numpy().round(3))
    [-0.432  2.   ]
    """
    scaled = _activation("elu", elementwise.divide(x, alpha), {"alpha": 1.0})
    return elementwise.multiply(scaled, alpha)


@op
def gelu(x: Any, approximate: bool = True) -> Any:
    """x times the normal distribution function of x, or its approximation by tanh.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        approximate: Whether tanh approximates the distribution function; otherwise `erf` gives
            it.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.gelu([-1.0, 0.0, 2.0]).numpy().round(3))
    [-0.159  0.     1.955]
    >>> print(ops.gelu([-1.0, 0.0, 2.0], approximate=False).numpy().round(3))
    [-0.159  0.     1.954]
    """
    return _activation("gelu", x, {"approximate": bool(approximate)})


@op
def silu(x: Any) -> Any:
    """x * sigmoid(x), also called swish.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Elfwing et al., "Sigmoid-Weighted Linear Units for Neural Network Function Approximation
    in Reinforcement Learning", 2018.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.silu([-1.0, 0.0, 2.0]).numpy().round(3))
    [-0.269  0.     1.762]
    """
    return _activation("silu", x)


def swish(x: Any) -> Any:
    """The same as `silu`.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Ramachandran et al., "Searching for Activation Functions", 2017.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.swish([-1.0, 0.0, 2.0]).numpy().round(3))
    [-0.269  0.     1.762]
    """
    return silu(x)


@dispatch.at_once("sigmoid")
@op
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), without overflow for low x.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.sigmoid([-1000.0, 0.0, 1000.0]).numpy().tolist()
    [0.0, 0.5, 1.0]
    """
    return _noted("sigmoid", _activation("sigmoid", x))


@op
def softplus(x: Any) -> Any:
    """log(1 + exp(x)), a smooth relu; it does not overflow for large x.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Dugas et al., "Incorporating Second-Order Functional Knowledge for Better Option
    Pricing", 2001.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.softplus([-1.0, 0.0, 100.0]).numpy().round(3))
    [  0.313   0.693 100.   ]
    """
    return _activation("softplus", x)


@op
def softsign(x: Any) -> Any:
    """x / (1 + |x|), between -1 and 1.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Bergstra et al., "Quadratic Polynomials Learn Better Image Features", 2009.

    Example:

    >>> from kerascnn import ops
    >>> ops.softsign([1.0, -3.0]).numpy().tolist()
    [0.5, -0.75]
    """
    x = dispatch.convert_floating(x)
    return elementwise.divide(x, elementwise.add(elementwise.absolute(x), 1))


@op
def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)), exact for large negative x.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.log_sigmoid([-100.0, 0.0]).numpy().round(3))
    [-100.      -0.693]
    """
    return elementwise.negative(softplus(elementwise.negative(dispatch.convert_floating(x))))


@op
def hard_sigmoid(x: Any) -> Any:
    """x / 6 + 1/2, cut to [0, 1].

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Howard et al., "Searching for MobileNetV3", 2019.

    Example:

    >>> from kerascnn import ops
    >>> ops.hard_sigmoid([-4.0, 0.0, 1.5]).numpy().tolist()
    [0.0, 0.5, 0.75]
    """
    return elementwise.divide(relu6(elementwise.add(dispatch.convert_floating(x), 3)), 6)


@op
def hard_silu(x: Any) -> Any:
    """x * hard_sigmoid(x).

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Howard et al., "Searching for MobileNetV3", 2019.

    Example:

    >>> from kerascnn import ops
    >>> ops.hard_silu([-4.0, 1.5, 3.0]).numpy().tolist()
    [-0.0, 1.125, 3.0]
    """
    return elementwise.multiply(x, hard_sigmoid(x))


def hard_swish(x: Any) -> Any:
    """The same as `hard_silu`.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Howard et al., "Searching for MobileNetV3", 2019.

    Example:

    >>> from kerascnn import ops
    >>> ops.hard_swish([-4.0, 1.5, 3.0]).numpy().tolist()
    [-0.0, 1.125, 3.0]
    """
    return hard_silu(x)


@op
def hard_tanh(x: Any) -> Any:
    """x, cut to [-1, 1].

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        The shape and dtype of `x`; bool becomes int32.

    Example:

    >>> from kerascnn import ops
    >>> ops.hard_tanh([-2.0, 0.5, 3.0]).numpy().tolist()
    [-1.0, 0.5, 1.0]
    """
    return elementwise.clip(x, -1.0, 1.0)


@op
def mish(x: Any) -> Any:
    """x * tanh(softplus(x)).

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.mish([-1.0, 0.0, 2.0]).numpy().round(3))
    [-0.303  0.     1.944]
    """
    return elementwise.multiply(x, elementwise.tanh(softplus(x)))


@op
def glu(x: Any, axis: int = -1) -> Any:
    """The first half along an axis, times the sigmoid of the second half.

    Args:
        x: Tensor of an even size along `axis`. Integers and bool are computed as `floatx`.
        axis: The axis that is halved.

    Returns:
        A floating tensor in the shape of `x`, but half as long along `axis`.

    Raises:
        ValueError: where the axis does not exist or has an odd size.

    Source: Dauphin et al., "Language Modeling with Gated Convolutional Networks", 2017.

    Example:

    >>> from kerascnn import ops
    >>> ops.glu([1.0, 2.0, 0.0, 0.0]).numpy().tolist()
    [0.5, 1.0]
    """
    x = dispatch.convert(x)
    rank = len(x.shape)
    if not -rank <= axis < rank or x.shape[axis] % 2:
        raise ValueError(
            f"glu: axis {axis} must exist and have an even size. Received: shape={tuple(x.shape)}"
        )
    values, gates = joining.split(x, 2, axis)
    return elementwise.multiply(values, sigmoid(gates))


@op
def softmax(x: Any, axis: Any = -1) -> Any:
    """exp(x) divided by its sum along an axis, without overflow.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        axis: One or several axes that the results sum to 1 over, or None for all.

    Returns:
        A floating tensor in the shape of `x`. The results are NaN where all elements along the
        axis are -infinity.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.softmax([0.0, 0.0]).numpy().tolist()
    [0.5, 0.5]
    >>> ops.softmax([[1.0, 1.0], [1.0, 1.0]], axis=(0, 1)).numpy().tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    """
    return _noted("softmax", _along("softmax", x, axis))


@op
def log_softmax(x: Any, axis: Any = -1) -> Any:
    """The logarithm of `softmax`, exact where that is close to 0.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        axis: One or several axes that the exponentials sum to 1 over, or None for all.

    Returns:
        A floating tensor in the shape of `x`.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.log_softmax([0.0, -1000.0]).numpy().tolist()
    [0.0, -1000.0]
    """
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
    axes = reduction._axes(axis, x)
    order = [a for a in range(rank) if a not in axes] + axes
    moved = shaping.transpose(x, order)
    kept = tuple(moved.shape[: rank - len(axes)])
    flat = shaping.reshape(moved, (*kept, int(np.prod(moved.shape[len(kept) :], dtype=np.int64))))
    result = shaping.reshape(_activation(name, flat, {"axis": len(kept)}), tuple(moved.shape))
    return shaping.transpose(result, np.argsort(order).tolist())

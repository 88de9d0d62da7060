"""Activation functions as layers name them; each is one of `kerascnn.ops` with Keras' arguments."""

from __future__ import annotations

from typing import Any

from kerascnn import ops


def linear(x: Any) -> Any:
    """x itself."""
    return x


def relu(
    x: Any, negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0
) -> Any:
    """x where it is above the threshold, else negative_slope * (x - threshold), up to max_value.

    Args:
        x: Input.
        negative_slope: Slope below the threshold.
        max_value: Upper limit, None for none.
        threshold: Below it the function is damped.

    Example:

    >>> from kerascnn import activations
    >>> activations.relu([-10.0, 5.0, 10.0], max_value=6.0).numpy().tolist()
    [0.0, 5.0, 6.0]
    """
    if negative_slope == 0.0 and threshold == 0.0:
        return ops.relu(x) if max_value is None else ops.clipped_relu(x, max_value)
    if threshold == 0.0:
        if max_value is None:
            return ops.leaky_relu(x, negative_slope)
        return ops.minimum(ops.leaky_relu(x, negative_slope), max_value)
    above = ops.where(ops.greater(x, threshold), x, ops.zeros_like(x))
    if max_value is not None:
        above = ops.clip(above, 0.0, max_value)
    if negative_slope == 0.0:
        return above
    below = ops.relu(ops.subtract(threshold, x))
    return ops.subtract(above, ops.multiply(below, negative_slope))


def leaky_relu(x: Any, negative_slope: float = 0.2) -> Any:
    """x where it is positive, else negative_slope * x."""
    return ops.leaky_relu(x, negative_slope)


def relu6(x: Any) -> Any:
    """min(max(x, 0), 6)."""
    return ops.relu6(x)


def softmax(x: Any, axis: int = -1) -> Any:
    """exp(x) divided by its sum along an axis: probabilities from scores."""
    return ops.softmax(x, axis)


def log_softmax(x: Any, axis: int = -1) -> Any:
    """The logarithm of `softmax`."""
    return ops.log_softmax(x, axis)


def elu(x: Any, alpha: float = 1.0) -> Any:
    """x where it is positive, else alpha * (exp(x) - 1). Source: Clevert et al., 2015."""
    return ops.elu(x, alpha)


def selu(x: Any) -> Any:
    """A scaled elu that keeps mean 0 and variance 1. Source: Klambauer et al., 2017."""
    return ops.selu(x)


def celu(x: Any, alpha: float = 1.0) -> Any:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)). Source: Barron, 2017."""
    return ops.celu(x, alpha)


def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    return ops.softplus(x)


def softsign(x: Any) -> Any:
    """x / (1 + |x|)."""
    return ops.softsign(x)


def silu(x: Any) -> Any:
    """x * sigmoid(x), also called swish. Source: Ramachandran et al., 2017."""
    return ops.silu(x)


def gelu(x: Any, approximate: bool = False) -> Any:
    """x times the normal distribution function of x. Source: Hendrycks and Gimpel, 2016."""
    return ops.gelu(x, approximate)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return ops.tanh(x)


def hard_tanh(x: Any) -> Any:
    """x, cut to [-1, 1]."""
    return ops.hard_tanh(x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return ops.sigmoid(x)


def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x))."""
    return ops.log_sigmoid(x)


def hard_sigmoid(x: Any) -> Any:
    """x / 6 + 1/2, cut to [0, 1]."""
    return ops.hard_sigmoid(x)


def hard_silu(x: Any) -> Any:
    """x * hard_sigmoid(x)."""
    return ops.hard_silu(x)


def exponential(x: Any) -> Any:
    """exp(x)."""
    return ops.exp(x)


def mish(x: Any) -> Any:
    """x * tanh(softplus(x)). Source: Misra, 2019."""
    return ops.mish(x)

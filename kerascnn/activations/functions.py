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


def glu(x: Any, axis: int = -1) -> Any:
    """Half of x along an axis, times the sigmoid of the other. Source: Dauphin et al., 2017."""
    return ops.glu(x, axis)


def hard_shrink(x: Any, threshold: float = 0.5) -> Any:
    """x where its absolute value is above the threshold, else 0."""
    return ops.hard_shrink(x, threshold)


def soft_shrink(x: Any, threshold: float = 0.5) -> Any:
    """x moved towards 0 by the threshold."""
    return ops.soft_shrink(x, threshold)


def tanh_shrink(x: Any) -> Any:
    """x - tanh(x)."""
    return ops.tanh_shrink(x)


def threshold(x: Any, threshold: float, default_value: float) -> Any:
    """x where it is above the threshold, else the default value."""
    return ops.threshold(x, threshold, default_value)


def squareplus(x: Any, b: float = 4) -> Any:
    """(x + sqrt(x * x + b)) / 2. Source: Barron, 2021."""
    return ops.squareplus(x, b)


def sparse_plus(x: Any) -> Any:
    """0 up to -1, (x + 1)^2 / 4 up to 1, and x above."""
    return ops.sparse_plus(x)


def sparse_sigmoid(x: Any) -> Any:
    """(x + 1) / 2, cut to [0, 1]."""
    return ops.sparse_sigmoid(x)


def sparsemax(x: Any, axis: int = -1) -> Any:
    """Scores above a threshold of their own; see `ops.sparsemax`."""
    return ops.sparsemax(x, axis)

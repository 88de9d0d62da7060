"""Activation functions as layers name them; each is one of `kerascnn.ops` with Keras' arguments."""

from __future__ import annotations

from typing import Any

from kerascnn import ops
from kerascnn.tracebacks import warn


def linear(x: Any) -> Any:
    """x itself.

    Args:
        x: Tensor of any shape.

    Returns:
        x, whatever it is.

    Example:

    >>> from kerascnn import activations
    >>> activations.linear(3.0)
    3.0
    """
    return x


def relu(
    x: Any, negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0
) -> Any:
    """x where it is above the threshold, else negative_slope * (x - threshold), up to max_value.

    Args:
        x: Tensor of any shape.
        negative_slope: Slope below the threshold.
        max_value: Upper limit, None for none.
        threshold: Below it the function is damped.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

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
    """x where it is positive, else negative_slope * x.

    Args:
        x: Tensor of any shape.
        negative_slope: Slope below 0.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Source: Maas et al., "Rectifier Nonlinearities Improve Neural Network Acoustic Models", 2013.

    Example:

    >>> from kerascnn import activations
    >>> activations.leaky_relu([-3.0, 0.0, 2.0], 0.5).numpy().tolist()
    [-1.5, 0.0, 2.0]
    """
    return ops.leaky_relu(x, negative_slope)


def relu6(x: Any) -> Any:
    """min(max(x, 0), 6).

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Source: Howard et al., "MobileNets", 2017.

    Example:

    >>> from kerascnn import activations
    >>> activations.relu6([-3.0, 2.0, 8.0]).numpy().tolist()
    [0.0, 2.0, 6.0]
    """
    return ops.relu6(x)


def softmax(x: Any, axis: int = -1) -> Any:
    """exp(x) divided by its sum along an axis: probabilities from scores.

    Args:
        x: Tensor of any shape.
        axis: The axis along which it is computed; a negative one counts from the end.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Example:

    >>> from kerascnn import activations
    >>> activations.softmax([0.0, 0.0, 0.0, 0.0]).numpy().tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    shape = getattr(x, "shape", None)
    if isinstance(axis, int) and shape and -len(shape) <= axis < len(shape) and shape[axis] == 1:
        warn(
            f"softmax over axis {axis} of a tensor of shape {tuple(shape)}: the axis has size 1, "
            "so all results are 1. For one probability use the activation 'sigmoid'."
        )
    return ops.softmax(x, axis)


def log_softmax(x: Any, axis: int = -1) -> Any:
    """The logarithm of `softmax`, exact also where a probability is nearly 0.

    Args:
        x: Tensor of any shape.
        axis: The axis along which it is computed; a negative one counts from the end.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.log_softmax([0.0, 0.0, 1000.0]).numpy().round(3))
    [-1000. -1000.     0.]
    """
    return ops.log_softmax(x, axis)


def elu(x: Any, alpha: float = 1.0) -> Any:
    """x where it is positive, else alpha * (exp(x) - 1).

    Args:
        x: Tensor of any shape.
        alpha: The limit far below 0 is -alpha.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Source: Clevert et al., "Fast and Accurate Deep Network Learning by Exponential Linear Units",
    2015.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.elu([-3.0, 0.0, 2.0]).numpy().round(3))
    [-0.95  0.    2.  ]
    """
    return ops.elu(x, alpha)


def selu(x: Any) -> Any:
    """1.0507 times `elu` with alpha = 1.67326, which keeps mean 0 and variance 1.

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.selu([-3.0, 0.0, 2.0]).numpy().round(3))
    [-1.671  0.     2.101]
    """
    return ops.selu(x)


def celu(x: Any, alpha: float = 1.0) -> Any:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)).

    Args:
        x: Tensor of any shape.
        alpha: The limit far below 0 is -alpha; not 0.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Source: Barron, "Continuously Differentiable Exponential Linear Units", 2017.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.celu([-3.0, 0.0, 2.0], alpha=2.0).numpy().round(3))
    [-1.554  0.     2.   ]
    """
    return ops.celu(x, alpha)


def softplus(x: Any) -> Any:
    """log(1 + exp(x)), which does not overflow.

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Source: Dugas et al., "Incorporating Second-Order Functional Knowledge for Better Option
    Pricing", 2000.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.softplus([-3.0, 0.0, 1000.0]).numpy().round(3))
    [4.90e-02 6.93e-01 1.00e+03]
    """
    return ops.softplus(x)


def softsign(x: Any) -> Any:
    """x / (1 + |x|).

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Example:

    >>> from kerascnn import activations
    >>> activations.softsign([-3.0, 0.0, 1.0]).numpy().tolist()
    [-0.75, 0.0, 0.5]
    """
    return ops.softsign(x)


def silu(x: Any) -> Any:
    """x * sigmoid(x), also called swish.

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Source: Ramachandran et al., "Searching for Activation Functions", 2017.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.silu([-3.0, 0.0, 2.0]).numpy().round(3))
    [-0.142  0.     1.762]
    """
    return ops.silu(x)


def gelu(x: Any, approximate: bool = False) -> Any:
    """x times the normal distribution function of x.

    Args:
        x: Tensor of any shape.
        approximate: Whether to use 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) for it.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.gelu([-3.0, 0.0, 2.0]).numpy().round(3))
    [-0.004  0.     1.954]
    """
    return ops.gelu(x, approximate)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent.

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.tanh([-3.0, 0.0, 2.0]).numpy().round(3))
    [-0.995  0.     0.964]
    """
    return ops.tanh(x)


def hard_tanh(x: Any) -> Any:
    """x, cut to [-1, 1].

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x.

    Example:

    >>> from kerascnn import activations
    >>> activations.hard_tanh([-3.0, 0.0, 2.0]).numpy().tolist()
    [-1.0, 0.0, 1.0]
    """
    return ops.hard_tanh(x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)).

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.sigmoid([-3.0, 0.0, 2.0]).numpy().round(3))
    [0.047 0.5   0.881]
    """
    return ops.sigmoid(x)


def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)), exact also where the sigmoid is nearly 0.

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.log_sigmoid([-1000.0, 0.0, 2.0]).numpy().round(2))
    [-1.0e+03 -6.9e-01 -1.3e-01]
    """
    return ops.log_sigmoid(x)


def hard_sigmoid(x: Any) -> Any:
    """x / 6 + 1/2, cut to [0, 1].

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Example:

    >>> from kerascnn import activations
    >>> activations.hard_sigmoid([-3.0, 0.0, 6.0]).numpy().tolist()
    [0.0, 0.5, 1.0]
    """
    return ops.hard_sigmoid(x)


def hard_silu(x: Any) -> Any:
    """x * hard_sigmoid(x), also called hard swish.

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Source: Howard et al., "Searching for MobileNetV3", 2019.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.hard_silu([-3.0, 0.0, 2.0]).numpy().round(3))
    [-0.     0.     1.667]
    """
    return ops.hard_silu(x)


def exponential(x: Any) -> Any:
    """exp(x).

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.exponential([-3.0, 0.0, 2.0]).numpy().round(3))
    [0.05  1.    7.389]
    """
    return ops.exp(x)


def mish(x: Any) -> Any:
    """x * tanh(softplus(x)).

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Source: Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.mish([-3.0, 0.0, 2.0]).numpy().round(3))
    [-0.146  0.     1.944]
    """
    return ops.mish(x)


def glu(x: Any, axis: int = -1) -> Any:
    """Half of x along an axis, times the sigmoid of the other half.

    Args:
        x: Tensor of any shape.
        axis: The axis that is cut in two, of even length.

    Returns:
        A tensor in the dtype of x whose axis is half as long; integers become `floatx`.

    Source: Dauphin et al., "Language Modeling with Gated Convolutional Networks", 2017.

    Example:

    >>> from kerascnn import activations
    >>> activations.glu([[1.0, 2.0, 0.0, 0.0]]).numpy().tolist()
    [[0.5, 1.0]]
    """
    return ops.glu(x, axis)


def hard_shrink(x: Any, threshold: float = 0.5) -> Any:
    """x where its absolute value is above the threshold, else 0.

    Args:
        x: Tensor of any shape.
        threshold: Largest absolute value that becomes 0.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Example:

    >>> from kerascnn import activations
    >>> activations.hard_shrink([-3.0, 0.25, 2.0]).numpy().tolist()
    [-3.0, 0.0, 2.0]
    """
    return ops.hard_shrink(x, threshold)


def soft_shrink(x: Any, threshold: float = 0.5) -> Any:
    """x moved towards 0 by the threshold, and not beyond.

    Args:
        x: Tensor of any shape.
        threshold: How far x is moved.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Example:

    >>> from kerascnn import activations
    >>> activations.soft_shrink([-3.0, 0.25, 2.0]).numpy().tolist()
    [-2.5, 0.0, 1.5]
    """
    return ops.soft_shrink(x, threshold)


def tanh_shrink(x: Any) -> Any:
    """x - tanh(x).

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.tanh_shrink([-3.0, 0.0, 2.0]).numpy().round(3))
    [-2.005  0.     1.036]
    """
    return ops.tanh_shrink(x)


def threshold(x: Any, threshold: float, default_value: float) -> Any:
    """x where it is above the threshold, else the default value.

    Args:
        x: Tensor of any shape.
        threshold: The limit; x is replaced where it is equal, too.
        default_value: What stands for x there.

    Returns:
        A tensor of the shape and the dtype of x.

    Example:

    >>> from kerascnn import activations
    >>> activations.threshold([-3.0, 0.0, 2.0], 0.5, 9.0).numpy().tolist()
    [9.0, 9.0, 2.0]
    """
    return ops.threshold(x, threshold, default_value)


def squareplus(x: Any, b: float = 4) -> Any:
    """(x + sqrt(x * x + b)) / 2, a smooth relu without exponentials.

    Args:
        x: Tensor of any shape.
        b: How round the corner at 0 is; 0 for relu.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Source: Barron, "Squareplus: A Softplus-Like Algebraic Rectifier", 2021.

    Example:

    >>> from kerascnn import activations
    >>> print(activations.squareplus([-3.0, 0.0, 2.0]).numpy().round(3))
    [0.303 1.    2.414]
    """
    return ops.squareplus(x, b)


def sparse_plus(x: Any) -> Any:
    """0 up to -1, (x + 1)^2 / 4 up to 1, and x above.

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Example:

    >>> from kerascnn import activations
    >>> activations.sparse_plus([-3.0, 0.0, 2.0]).numpy().tolist()
    [0.0, 0.25, 2.0]
    """
    return ops.sparse_plus(x)


def sparse_sigmoid(x: Any) -> Any:
    """(x + 1) / 2, cut to [0, 1].

    Args:
        x: Tensor of any shape.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Example:

    >>> from kerascnn import activations
    >>> activations.sparse_sigmoid([-3.0, 0.0, 2.0]).numpy().tolist()
    [0.0, 0.5, 1.0]
    """
    return ops.sparse_sigmoid(x)


def sparsemax(x: Any, axis: int = -1) -> Any:
    """Scores above a threshold of their own, less that threshold, as Keras computes it.

    The formula, which is not the paper's where several scores are above it, is that of
    `ops.sparsemax`.

    Args:
        x: Tensor of any shape.
        axis: The axis along which it is computed; a negative one counts from the end.

    Returns:
        A tensor of the shape and the dtype of x; integers become `floatx`.

    Source: Martins and Astudillo, "From Softmax to Sparsemax", 2016.

    Example:

    >>> from kerascnn import activations
    >>> activations.sparsemax([3.0, 0.5, -2.0]).numpy().tolist()
    [1.0, 0.0, 0.0]
    """
    return ops.sparsemax(x, axis)

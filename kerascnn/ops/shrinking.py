"""Activations that move elements towards 0, or to it below a threshold."""

from __future__ import annotations

from typing import Any

from kerascnn.ops import dispatch, elementwise, reduction, shaping
from kerascnn.ops.activation import relu
from kerascnn.symbolic.operation import op

__all__ = [
    "hard_shrink",
    "soft_shrink",
    "sparse_plus",
    "sparse_sigmoid",
    "sparsemax",
    "squareplus",
    "tanh_shrink",
    "threshold",
]


@op
def hard_shrink(x: Any, threshold: float = 0.5) -> Any:
    """x where its absolute value is above the threshold, else 0.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        threshold: The largest absolute value that becomes 0.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Donoho and Johnstone, "Ideal Spatial Adaptation by Wavelet Shrinkage", 1994.

    Example:

    >>> from kerascnn import ops
    >>> ops.hard_shrink([-1.0, 0.25, 2.0]).numpy().tolist()
    [-1.0, 0.0, 2.0]
    """
    x = dispatch.convert_floating(x)
    return elementwise.where(elementwise.greater(elementwise.absolute(x), threshold), x, 0.0)


@op
def soft_shrink(x: Any, threshold: float = 0.5) -> Any:
    """x moved towards 0 by the threshold, and 0 where it would go beyond.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        threshold: How far each element moves.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Donoho and Johnstone, "Ideal Spatial Adaptation by Wavelet Shrinkage", 1994.

    Example:

    >>> from kerascnn import ops
    >>> ops.soft_shrink([-1.0, 0.25, 2.0]).numpy().tolist()
    [-0.5, 0.0, 1.5]
    """
    x = dispatch.convert_floating(x)
    up, down = elementwise.subtract(x, threshold), elementwise.add(x, threshold)
    return elementwise.where(
        elementwise.greater(x, threshold),
        up,
        elementwise.where(elementwise.less(x, -threshold), down, 0.0),
    )


@op
def tanh_shrink(x: Any) -> Any:
    """x - tanh(x).

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.tanh_shrink([-2.0, 0.0, 2.0]).numpy().round(3))
    [-1.036  0.     1.036]
    """
    x = dispatch.convert_floating(x)
    return elementwise.subtract(x, elementwise.tanh(x))


@op
def threshold(x: Any, threshold: float, default_value: float) -> Any:
    """x where it is above the threshold, else the default value.

    Args:
        x: Tensor of any shape and dtype.
        threshold: What an element has to exceed.
        default_value: The result for elements that don't, NaN among them.

    Returns:
        The shape of `x`, in the dtype that `x` and `default_value` promote to.

    Example:

    >>> from kerascnn import ops
    >>> ops.threshold([1, 2, 3], 2, 0).numpy().tolist()
    [0, 0, 3]
    """
    x = dispatch.convert(x)
    return elementwise.where(elementwise.greater(x, threshold), x, default_value)


@op
def squareplus(x: Any, b: float = 4) -> Any:
    """(x + sqrt(x * x + b)) / 2, a smooth relu.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        b: How smooth the curve is around 0; 0 gives a relu.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Barron, "Squareplus: A Softplus-Like Algebraic Rectifier", 2021.

    Example:

    >>> from kerascnn import ops
    >>> ops.squareplus([-1.5, 0.0, 1.5]).numpy().tolist()
    [0.5, 1.0, 2.0]
    """
    x = dispatch.convert_floating(x)
    root = elementwise.sqrt(elementwise.add(elementwise.square(x), b))
    return elementwise.divide(elementwise.add(x, root), 2)


@op
def sparse_plus(x: Any) -> Any:
    """0 up to -1, (x + 1)^2 / 4 up to 1, and x above.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Blondel et al., "Learning with Fenchel-Young Losses", 2020.

    Example:

    >>> from kerascnn import ops
    >>> ops.sparse_plus([-2.0, 0.0, 2.0]).numpy().tolist()
    [0.0, 0.25, 2.0]
    """
    x = dispatch.convert_floating(x)
    curve = elementwise.multiply(elementwise.square(elementwise.add(x, 1)), 0.25)
    rising = elementwise.where(elementwise.less(x, 1), curve, x)
    return elementwise.where(elementwise.less_equal(x, -1), 0.0, rising)


@op
def sparse_sigmoid(x: Any) -> Any:
    """(x + 1) / 2, cut to [0, 1]: the slope of `sparse_plus`.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: Blondel et al., "Learning with Fenchel-Young Losses", 2020.

    Example:

    >>> from kerascnn import ops
    >>> ops.sparse_sigmoid([-2.0, 0.0, 2.0]).numpy().tolist()
    [0.0, 0.5, 1.0]
    """
    x = dispatch.convert_floating(x)
    line = elementwise.multiply(elementwise.add(x, 1), 0.5)
    rising = elementwise.where(elementwise.greater_equal(x, 1), 1.0, line)
    return elementwise.where(elementwise.less_equal(x, -1), 0.0, rising)


@op
def sparsemax(x: Any, axis: int = -1) -> Any:
    """Scores cut off at a threshold of their own, so that small ones get exactly 0.

    With the k largest scores z_1 >= ... >= z_k that the paper gives a share, this is max(x - t, 0)
    where t = (z_1 + (z_1 + z_2) + ... + (z_1 + ... + z_k) - 1) / k. That is how Keras computes it;
    the paper's t has the last of these sums only, which is the same where k is 1.

    Args:
        x: Scores of any shape. Integers and bool are computed as `floatx`.
        axis: The axis that they are compared along, each with each other: the work grows with
            the square of its size.

    Returns:
        A floating tensor in the shape of `x`.

    Raises:
        ValueError: where `x` has no such axis.

    Source: Martins and Astudillo, "From Softmax to Sparsemax", 2016.

    Example:

    >>> from kerascnn import ops
    >>> ops.sparsemax([3.0, 0.5, -2.0]).numpy().tolist()
    [1.0, 0.0, 0.0]
    """
    x = dispatch.convert_floating(x)
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

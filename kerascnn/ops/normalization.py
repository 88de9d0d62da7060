"""Normalization to a mean and a variance, or to a length."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import config, dtypes
from kerascnn.ops import dispatch, elementwise, reduction, shaping
from kerascnn.symbolic.operation import op

__all__ = [
    "batch_normalization",
    "layer_normalization",
    "moments",
    "normalize",
    "rms_normalization",
]


def _wide(x: Any) -> tuple[Any, str]:
    """Returns the tensor in at least float32, and the dtype to which the result returns."""
    x = dispatch.convert_floating(x)
    return dispatch.convert(x, dtypes.result_type(x.dtype, "float32")), x.dtype


def _axes(axis: int | Sequence[int], shape: Sequence[int], name: str) -> list[int]:
    rank = len(shape)
    axes = [axis] if isinstance(axis, int) else list(axis)
    for entry in axes:
        if not -rank <= entry < rank:
            raise ValueError(
                f"{name}: axis {entry} does not exist in a tensor of shape {tuple(shape)}"
            )
    return sorted(entry % rank for entry in axes)


def _spread(v: Any, x: Any, axes: Sequence[int]) -> Any:
    """Reshapes a weight with one number for each place along the axes to broadcast with x."""
    shape = [n if i in axes else 1 for i, n in enumerate(x.shape)]
    v = dispatch.convert(v, x.dtype, like=x)
    return v if list(axes) == [len(shape) - 1] else shaping.reshape(v, shape)


@op
def layer_normalization(
    x: Any,
    gamma: Any = None,
    beta: Any = None,
    axis: int | Sequence[int] = -1,
    epsilon: float | None = None,
    **kwargs: Any,
) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, each sample by its own statistics.

    Args:
        x: Tensor of at least one axis. Integers become `floatx`; 16-bit floats are computed in
            float32.
        gamma: Factors, one for each place along the axes, or None.
        beta: Offsets, the same.
        axis: What mean and population variance are taken over, one axis or several.
        epsilon: Keeps the root from 0, by default `config.epsilon()`.
        kwargs: `rms_scaling=True` divides by the root of the variance without taking the mean off,
            for old models; `rms_normalization` is what its name says.

    Returns:
        A tensor of the shape of `x`, in its dtype if that is floating, else `floatx`.

    Raises:
        TypeError: for another keyword.
        ValueError: for an axis that does not exist.

    Source: Ba et al., "Layer Normalization", 2016.

    Example:

    >>> from kerascnn import ops
    >>> ops.layer_normalization([[1.0, 3.0]]).numpy().round(3).tolist()
    [[-1.0, 1.0]]
    """
    rms_scaling = kwargs.pop("rms_scaling", False)
    if kwargs:
        raise TypeError(f"layer_normalization does not have the argument(s) {sorted(kwargs)}.")
    if rms_scaling:
        warnings.warn(
            "rms_scaling=True divides by the root of the variance, not by the root mean square; "
            "use rms_normalization for that.",
            stacklevel=2,
        )
    x, dtype = _wide(x)
    axes = _axes(axis, x.shape, "layer_normalization")
    mean = reduction.mean(x, axes, keepdims=True)
    centred = elementwise.subtract(x, mean)
    variance = reduction.mean(elementwise.square(centred), axes, keepdims=True)
    added = config.epsilon() if epsilon is None else epsilon
    factor = elementwise.rsqrt(elementwise.add(variance, added))
    y = elementwise.multiply(x if rms_scaling else centred, factor)
    if gamma is not None:
        y = elementwise.multiply(y, _spread(gamma, x, axes))
    if beta is not None and not rms_scaling:
        y = elementwise.add(y, _spread(beta, x, axes))
    return dispatch.convert(y, dtype)


@op
def rms_normalization(
    x: Any, scale: Any = None, axis: int | Sequence[int] = -1, epsilon: float | None = None
) -> Any:
    """x / sqrt(mean of its squares + epsilon) * scale.

    Args:
        x: Tensor of any shape; a number counts as a vector. Integers become `floatx`; 16-bit floats
            are computed in float32.
        scale: Factors, one for each place along the axes, or None.
        axis: What the mean is taken over, one axis or several.
        epsilon: Keeps the root from 0, by default `config.epsilon()`.

    Returns:
        A tensor of the shape of `x`, in its dtype if that is floating, else `floatx`.

    Raises:
        ValueError: for an axis that does not exist.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    Example:

    >>> from kerascnn import ops
    >>> ops.rms_normalization([[3.0, 3.0]]).numpy().round(3).tolist()
    [[1.0, 1.0]]
    """
    x, dtype = _wide(x)
    if not x.shape:
        x = shaping.expand_dims(x, 0)
    axes = _axes(axis, x.shape, "rms_normalization")
    squares = reduction.mean(elementwise.square(x), axes, keepdims=True)
    added = config.epsilon() if epsilon is None else epsilon
    y = elementwise.multiply(x, elementwise.rsqrt(elementwise.add(squares, added)))
    if scale is not None:
        y = elementwise.multiply(y, _spread(scale, x, axes))
    return dispatch.convert(y, dtype)


@op
def normalize(
    x: Any, axis: int | Sequence[int] | None = -1, order: int = 2, epsilon: float | None = None
) -> Any:
    """x divided by its length along axes; zeros stay zeros.

    Args:
        x: Tensor of any shape; a number counts as a vector. Integers become `floatx`.
        axis: What the length is taken over, None for all.
        order: 2 for the Euclidean length, 1 for the sum of absolute values, p for (sum
            |x|^p)^(1/p).
        epsilon: What the length counts as at least, by default `config.epsilon()`.

    Returns:
        A tensor of the shape of `x`, in its dtype if that is floating, else `floatx`.

    Raises:
        ValueError: for an order that is not an integer from 1 on.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.normalize([[3.0, 4.0]]).numpy())
    [[0.6 0.8]]
    >>> ops.normalize([[1.0, 3.0], [0.0, 0.0]], order=1).numpy().tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    if not isinstance(order, int) or order < 1:
        raise ValueError(f"`order` must be an integer from 1 on. Received: order={order!r}")
    x = dispatch.convert_floating(x)
    if not x.shape:
        x = shaping.expand_dims(x, 0)
    least = config.epsilon() if epsilon is None else epsilon
    if order == 2:
        squares = reduction.sum(elementwise.square(x), axis, keepdims=True)
        smallest = max(least * least, float(np.finfo(dtypes.numpy_dtype("float32")).tiny))
        return elementwise.multiply(x, elementwise.rsqrt(elementwise.maximum(squares, smallest)))
    sizes = elementwise.absolute(x)
    if order == 1:
        length = reduction.sum(sizes, axis, keepdims=True)
    else:
        powers = reduction.sum(elementwise.power(sizes, order), axis, keepdims=True)
        length = elementwise.power(powers, 1.0 / order)
    return elementwise.divide(x, elementwise.maximum(length, least))


@op
def moments(
    x: Any, axes: int | Sequence[int], keepdims: bool = False, synchronized: bool = False
) -> tuple[Any, Any]:
    """Mean and population variance along axes.

    Args:
        x: Tensor of any dtype.
        axes: One axis or several.
        keepdims: Whether the axes stay, with size 1.
        synchronized: Only False; True would need several devices.

    Returns:
        (mean, variance), each of the other axes, in the dtype of `x` if that is floating, else
        `floatx`.

    Raises:
        ValueError: for synchronized=True.

    Example:

    >>> from kerascnn import ops
    >>> mean, variance = ops.moments([[1.0, 3.0], [2.0, 2.0]], axes=1)
    >>> mean.numpy().tolist(), variance.numpy().tolist()
    ([2.0, 2.0], [1.0, 0.0])
    """
    if synchronized:
        raise ValueError("moments: synchronized=True is not available, this is one device.")
    x = dispatch.convert(x)
    return reduction.mean(x, axes, keepdims), reduction.var(x, axes, keepdims)


@op
def batch_normalization(
    x: Any,
    mean: Any,
    variance: Any,
    axis: int,
    offset: Any = None,
    scale: Any = None,
    epsilon: float = 1e-3,
) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, each per element of one axis.

    It uses statistics that are known; `moments` computes those of a batch.

    Args:
        x: Tensor of at least one axis; integers become `floatx`.
        mean: (c,), c being the size of `axis`.
        variance: (c,)
        axis: The axis that keeps its own statistics; a negative one counts from the end.
        offset: (c,), or None for 0.
        scale: (c,), or None for 1.
        epsilon: Keeps the root from 0.

    Returns:
        A tensor of the shape of `x`, in its dtype if that is floating, else `floatx`.

    Raises:
        ValueError: for an axis that does not exist.

    Source: Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing
    Internal Covariate Shift", 2015.

    Example:

    >>> from kerascnn import ops
    >>> x = [[1.0, 5.0], [3.0, 5.0]]
    >>> ops.batch_normalization(x, [2.0, 4.0], [1.0, 4.0], axis=-1, epsilon=0.0).numpy().tolist()
    [[-1.0, 0.5], [1.0, 0.5]]
    """
    x = dispatch.convert_floating(x)
    rank = len(x.shape)
    (axis,) = _axes(axis, x.shape, "batch_normalization")
    shape = [x.shape[axis] if i == axis else 1 for i in range(rank)]

    def per_axis(v: Any) -> Any:
        return v if axis == rank - 1 else shaping.reshape(v, shape)

    factor = elementwise.rsqrt(elementwise.add(dispatch.convert(variance), epsilon))
    if scale is not None:
        factor = elementwise.multiply(factor, scale)
    shift = elementwise.negative(elementwise.multiply(mean, factor))
    if offset is not None:
        shift = elementwise.add(shift, offset)
    factor = dispatch.convert(per_axis(factor), x.dtype)
    shift = dispatch.convert(per_axis(shift), x.dtype)
    return elementwise.add(elementwise.multiply(x, factor), shift)

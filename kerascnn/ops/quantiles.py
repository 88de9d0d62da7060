"""Quantiles, percentiles and medians, with NaN and without, of sorted lines."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerascnn import dtypes, tracing
from kerascnn.ops import (
    creation,
    dispatch,
    elementwise,
    host,
    reduction,
    rounding,
    shaping,
)
from kerascnn.ops.sorting import sort, take_along_axis
from kerascnn.symbolic.operation import op

__all__ = [
    "median",
    "nanmedian",
    "nanpercentile",
    "nanquantile",
    "percentile",
    "quantile",
]

Axis = int | Sequence[int] | None


@op
def quantile(
    x: Any, q: Any, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """Returns the number below which a share q of the elements lies.

    It is NaN for elements among which there is a NaN, and for none.

    Args:
        x: Tensor of any shape and dtype.
        q: From 0 to 1: a number, or a vector, which makes the first axis of the result.
        axis: One axis or several, by default all.
        method: What counts between two elements: "linear", "lower", "higher", "midpoint" or
            "nearest".
        keepdims: Whether the axes stay, with size 1.

    Returns:
        A tensor of the other axes of `x`, after the axis of `q` if it is a vector, in the dtype of
        `x` if that is floating, else `floatx`.

    Raises:
        ValueError: for another method, and for a q that has more axes or is known and out of range.

    Source: Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996, definition 7
    ("linear").

    Example:

    >>> from kerascnn import ops
    >>> ops.quantile([1.0, 2.0, 4.0], 0.5).numpy().tolist()
    2.0
    >>> ops.quantile([[1, 2, 4], [3, 5, 9]], [0.0, 0.75], axis=1).numpy().tolist()
    [[1.0, 3.0], [3.0, 7.0]]
    """
    x = dispatch.convert(x)
    dtype = dtypes.float_result_type(x.dtype)
    x = dispatch.convert(x, dtype)
    if method not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise ValueError(
            "Invalid method. Valid methods are 'linear', 'lower', 'higher', 'midpoint' and "
            f"'nearest'. Received: method={method!r}"
        )
    axes = reduction._axes(axis, x)
    lines = _lines(x, axes)
    q = _shares("quantile", q, x)
    result = _between(sort(lines), q, method)
    if len(q.shape) == 1:
        result = shaping.moveaxis(result, -1, 0)
    if keepdims:
        sizes = [1 if a in axes else x.shape[a] for a in range(len(x.shape))]
        result = shaping.reshape(result, [*q.shape, *sizes])
    # A line with NaN has no quantile.
    lost = reduction.any(elementwise.isnan(x), axis, keepdims)
    return elementwise.where(lost, creation.full_like(result, float("nan")), result)


def _share_of_percent(q: Any, dtype: str) -> Any:
    """Divides by 100, at once where the values are known, so that `_shares` can check them."""
    with tracing.suspended() if host.is_known(q) else contextlib.nullcontext():
        return elementwise.divide(dispatch.convert(q, dtype), 100)


def _shares(name: str, q: Any, x: Any) -> Any:
    """Converts shares of elements to the dtype of x, and checks them as far as they are known."""
    if host.is_known(q):
        values = np.asarray(q)
        if values.size and not (values.min() >= 0 and values.max() <= 1):
            raise ValueError(
                f"{name}: q is from 0 to 1 (from 0 to 100 for percentiles). Received: shares from "
                f"{values.min()} to {values.max()}"
            )
    q = dispatch.convert(q, x.dtype, like=x)
    if len(q.shape) > 1:
        raise ValueError(f"{name}: q is a number or a vector. Received: shape={tuple(q.shape)}")
    return q


def _lines(x: Any, axes: list[int]) -> Any:
    """Makes some axes the last one. Where they have no elements, NaN stands for them."""
    kept = [a for a in range(len(x.shape)) if a not in axes]
    sizes = [x.shape[a] for a in kept]
    length = math.prod(x.shape[a] for a in axes)
    if length == 0:
        return creation.full([*sizes, 1], float("nan"), x.dtype)
    return shaping.reshape(shaping.transpose(x, [*kept, *axes]), [*sizes, length])


def _between(lines: Any, q: Any, method: str) -> Any:
    """Returns the quantiles (..., *q.shape) of sorted lines (..., n)."""
    axis = len(lines.shape) - 1
    place = elementwise.multiply(q, float(lines.shape[axis] - 1))
    return _at_place(place, method, lambda index: shaping.gather(lines, index, axis))


def _at_place(place: Any, method: str, element: Callable[[Any], Any]) -> Any:
    """Returns what is at a place between two elements of a line, which `element` gives by index."""
    down, up = rounding.floor(place), rounding.ceil(place)
    if method == "nearest":
        down = up = rounding.round(place)
    first = element(creation.cast(down, "int32"))
    second = element(creation.cast(up, "int32"))
    if method in ("lower", "nearest"):
        return first
    if method == "higher":
        return second
    share = 0.5 if method == "midpoint" else elementwise.subtract(place, down)
    return elementwise.add(first, elementwise.multiply(elementwise.subtract(second, first), share))


@op
def percentile(
    x: Any, q: Any, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """As `quantile`, with shares in percent.

    Args:
        x: Tensor of any shape and dtype.
        q: From 0 to 100: a number, or a vector, which makes the first axis of the result.
        axis: One axis or several, by default all.
        method: As for `quantile`.
        keepdims: Whether the axes stay, with size 1.

    Returns:
        As `quantile`.

    Raises:
        ValueError: as `quantile`.

    Example:

    >>> from kerascnn import ops
    >>> ops.percentile([1, 2, 3, 4, 5], 75).numpy().tolist()
    4.0
    """
    x = dispatch.convert(x)
    share = _share_of_percent(q, dtypes.float_result_type(x.dtype))
    return quantile(x, share, axis, method, keepdims)


@op
def median(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The middle element along axes, or the mean of the two in the middle.

    It is NaN for elements among which there is a NaN, and for none.

    Args:
        x: Tensor of any shape and dtype.
        axis: One axis or several, by default all.
        keepdims: Whether the axes stay, with size 1.

    Returns:
        A tensor of the other axes, in the dtype of `x` if that is floating, else `floatx`.

    Example:

    >>> from kerascnn import ops
    >>> ops.median([[1, 2, 4], [3, 8, 5]], axis=1).numpy().tolist()
    [2.0, 5.0]
    >>> ops.median([1.0, 2.0, 4.0, 8.0]).numpy().tolist()
    3.0
    """
    return quantile(x, 0.5, axis, "linear", keepdims)


@op
def nanquantile(
    x: Any, q: Any, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """As `quantile`, but of the elements that are not NaN; NaN where none is left.

    Args:
        x: Tensor of any shape and dtype.
        q: From 0 to 1: a number, or a vector, which makes the first axis of the result.
        axis: One axis or several, by default all.
        method: As for `quantile`.
        keepdims: Whether the axes stay, with size 1.

    Returns:
        As `quantile`.

    Raises:
        ValueError: as `quantile`.

    Example:

    >>> from kerascnn import ops
    >>> nan = float("nan")
    >>> ops.nanquantile([[1.0, nan, 3.0], [nan, 4.0, 8.0]], 0.5, axis=1).numpy().tolist()
    [2.0, 6.0]
    """
    x = dispatch.convert(x)
    x = dispatch.convert(x, dtypes.float_result_type(x.dtype))
    q = _shares("nanquantile", q, x)
    axes = reduction._axes(axis, x)
    lines = _lines(x, axes)
    count = reduction.sum(
        creation.cast(elementwise.logical_not(elementwise.isnan(lines)), "int32"), -1, True
    )
    lines = sort(lines)  # NaN comes last
    many = shaping.reshape(q, [1] * (len(lines.shape) - 1) + [-1])
    last = creation.cast(elementwise.maximum(elementwise.subtract(count, 1), 0), x.dtype)
    place = elementwise.multiply(last, many)
    if method not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise ValueError(f"nanquantile: method={method!r} is not known.")
    result = _at_place(place, method, lambda index: take_along_axis(lines, index, -1))
    result = shaping.moveaxis(result, -1, 0) if q.shape else shaping.squeeze(result, -1)
    if keepdims:
        sizes = [1 if a in axes else x.shape[a] for a in range(len(x.shape))]
        result = shaping.reshape(result, [*q.shape, *sizes])
    return result


@op
def nanpercentile(
    x: Any, q: Any, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """As `nanquantile`, with shares in percent.

    Args:
        x: Tensor of any shape and dtype.
        q: From 0 to 100: a number, or a vector, which makes the first axis of the result.
        axis: One axis or several, by default all.
        method: As for `quantile`.
        keepdims: Whether the axes stay, with size 1.

    Returns:
        As `quantile`.

    Raises:
        ValueError: as `quantile`.

    Example:

    >>> from kerascnn import ops
    >>> ops.nanpercentile([1.0, float("nan"), 3.0], 50).numpy().tolist()
    2.0
    """
    x = dispatch.convert(x)
    share = _share_of_percent(q, dtypes.float_result_type(x.dtype))
    return nanquantile(x, share, axis, method, keepdims)


@op
def nanmedian(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """As `median`, but of the elements that are not NaN; NaN where none is left.

    Args:
        x: Tensor of any shape and dtype.
        axis: One axis or several, by default all.
        keepdims: Whether the axes stay, with size 1.

    Returns:
        As `median`.

    Example:

    >>> from kerascnn import ops
    >>> ops.nanmedian([1.0, float("nan"), 4.0, 2.0]).numpy().tolist()
    2.0
    """
    return nanquantile(x, 0.5, axis, "linear", keepdims)

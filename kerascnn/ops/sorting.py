"""Sorting, the largest elements, quantiles and searches, all built on the core's argsort."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kerascnn import dtypes
from kerascnn.ops import creation, dispatch, elementwise, indexing, reduction, shaping
from kerascnn.ops.shaping import _axis
from kerascnn.symbolic.operation import op

__all__ = [
    "argpartition",
    "argsort",
    "digitize",
    "in_top_k",
    "median",
    "nanmedian",
    "nanpercentile",
    "nanquantile",
    "percentile",
    "quantile",
    "searchsorted",
    "sort",
    "take_along_axis",
    "top_k",
]

Axis = int | Sequence[int] | None


def _order(x: Any, axis: int | None, descending: bool, name: str) -> tuple[Any, Any, int]:
    """Returns the tensor (flattened for None), the order of its elements, and the axis."""
    x = dispatch.convert(x)
    if axis is None:
        x, axis = shaping.ravel(x), 0
    axis = _axis(axis, len(x.shape), name)
    key = dispatch.convert(x, "uint8") if x.dtype == "bool" else x
    attributes = {"axis": axis, "descending": descending}
    return x, dispatch.apply_one("argsort", [key], attributes), axis


@op
def argsort(x: Any, axis: int | None = -1) -> Any:
    """The positions of an axis' elements from the smallest to the largest, as int32.

    Equal elements keep their order; NaN comes last.

    Args:
        x: Input.
        axis: None sorts the flattened tensor.

    Example:

    >>> from kerascnn import ops
    >>> ops.argsort([3.0, 1.0, 2.0]).numpy().tolist()
    [1, 2, 0]
    """
    return _order(x, axis, False, "argsort")[1]


@op
def sort(x: Any, axis: int | None = -1) -> Any:
    """The elements along an axis from the smallest to the largest; NaN comes last."""
    x, order, axis = _order(x, axis, False, "sort")
    return take_along_axis(x, order, axis)


@op
def argpartition(x: Any, kth: int, axis: int | None = -1) -> Any:
    """Positions such that the kth is where it is in order, smaller ones before it."""
    x, order, axis = _order(x, axis, False, "argpartition")
    if not -x.shape[axis] <= kth < x.shape[axis]:
        raise ValueError(f"argpartition: kth={kth} is out of an axis of {x.shape[axis]} elements.")
    return order


@op
def take_along_axis(x: Any, indices: Any, axis: int | None = None) -> Any:
    """For each place of `indices`, the element of x there but for the index along the axis.

    Args:
        x: Input.
        indices: Integers, with as many axes as x (the others broadcast); negative ones count from
            the end.
        axis: By default both are flattened.

    Example:

    >>> from kerascnn import ops
    >>> ops.take_along_axis([[5, 6], [7, 8]], [[1], [0]], axis=1).numpy().tolist()
    [[6], [7]]
    """
    x, indices = dispatch.convert(x), dispatch.convert(indices, like=x)
    if dtypes.is_float(indices.dtype) or indices.dtype == "bool":
        raise TypeError(f"take_along_axis: indices are integers. Received: {indices.dtype}")
    if axis is None:
        x, indices, axis = shaping.ravel(x), shaping.ravel(indices), 0
    rank = len(x.shape)
    axis = _axis(axis, rank, "take_along_axis")
    if len(indices.shape) != rank:
        raise ValueError(
            "take_along_axis: x and indices must have the same number of axes. Received shapes: "
            f"{tuple(x.shape)}, {tuple(indices.shape)}"
        )
    kept = [a for a in range(rank) if a != axis]
    others = np.broadcast_shapes(
        tuple(x.shape[a] for a in kept), tuple(indices.shape[a] for a in kept)
    )
    if tuple(x.shape[a] for a in kept) != others:
        x = shaping.broadcast_to(x, [*others[:axis], x.shape[axis], *others[axis:]])
    if indices.dtype not in ("int32", "int64"):
        indices = dispatch.convert(indices, "int32")
    length = x.shape[axis]
    indices = elementwise.where(
        elementwise.less(indices, 0), elementwise.add(indices, length), indices
    )
    indices = elementwise.clip(indices, 0, max(length - 1, 0))
    # These are the starts of the lines in the flattened tensor.
    steps = [int(np.prod(x.shape[a + 1 :], dtype=np.int64)) for a in range(rank)]
    wide = int(np.prod(x.shape, dtype=np.int64)) > np.iinfo("int32").max
    start = np.zeros([1] * rank, "int64" if wide else "int32")
    for a in kept:
        view = [-1 if b == a else 1 for b in range(rank)]
        start = start + (np.arange(x.shape[a], dtype=start.dtype) * steps[a]).reshape(view)
    place = elementwise.add(elementwise.multiply(indices, steps[axis]), start)
    return dispatch.apply_one("gather", [shaping.ravel(x), place], {"axis": 0})


class TopK(NamedTuple):
    """The largest elements of each line, and their positions."""

    values: Any
    indices: Any


@op
def top_k(x: Any, k: int, sorted: bool = True) -> Any:
    """The k largest elements along the last axis and their positions, the first of equals first.

    Args:
        x: Input.
        k: How many.
        sorted: They are in order either way.

    Returns:
        (values, indices), each (..., k).

    Example:

    >>> from kerascnn import ops
    >>> values, indices = ops.top_k([1.0, 3.0, 2.0], 2)
    >>> values.numpy().tolist(), indices.numpy().tolist()
    ([3.0, 2.0], [1, 2])
    """
    x, order, axis = _order(x, -1, True, "top_k")
    if not 0 <= k <= x.shape[axis]:
        raise ValueError(f"top_k: k={k} of an axis of {x.shape[axis]} elements.")
    order = indexing.get_item(order, (Ellipsis, slice(0, k)))
    return TopK(take_along_axis(x, order, axis), order)


@op
def in_top_k(targets: Any, predictions: Any, k: int) -> Any:
    """True where fewer than k predictions are above that of the target, which is not NaN.

    Args:
        targets: Integers (n,).
        predictions: (n, classes)
        k: How many may be above, and the target itself.
    """
    predictions = dispatch.convert(predictions)
    targets = creation.cast(targets, "int32")
    own = take_along_axis(predictions, shaping.expand_dims(targets, -1), -1)
    above = reduction.sum(creation.cast(elementwise.greater(predictions, own), "int32"), -1)
    is_number = elementwise.logical_not(elementwise.isnan(shaping.squeeze(own, -1)))
    return elementwise.logical_and(elementwise.less(above, k), is_number)


@op
def searchsorted(sorted_sequence: Any, values: Any, side: str = "left") -> Any:
    """Returns where each value would have to be put into a sorted vector to keep it sorted.

    Args:
        sorted_sequence: (n,)
        values: Any shape.
        side: "left" puts it before equal elements, "right" behind them.

    Raises:
        ValueError: for a sequence that is no vector.
    """
    if side not in ("left", "right"):
        raise ValueError(f"`side` must be 'left' or 'right'. Received: side={side!r}")
    sequence, values = dispatch.operands(sorted_sequence, values)
    if len(sequence.shape) != 1:
        raise ValueError(
            "`searchsorted` only supports 1-D sorted sequences. You can use "
            f"`keras.ops.vectorized_map` for several. Received: shape={tuple(sequence.shape)}"
        )
    values = shaping.expand_dims(values, -1)
    compare = elementwise.less if side == "left" else elementwise.less_equal
    return reduction.sum(creation.cast(compare(sequence, values), "int32"), -1)


@op
def digitize(x: Any, bins: Any) -> Any:
    """The number of the bin that each element lies in: bins[i - 1] <= x < bins[i]."""
    return searchsorted(bins, x, "right")


@op
def quantile(
    x: Any, q: Any, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """Returns the number below which a share q of the elements lies; NaN without elements.

    Args:
        x: Input.
        q: From 0 to 1: a number, or a vector, which makes the first axis of the result.
        axis: By default all axes.
        method: Between two elements: "linear", "lower", "higher", "midpoint" or "nearest".
        keepdims: Whether the axes stay, with size 1.

    Example:

    >>> from kerascnn import ops
    >>> ops.quantile([1.0, 2.0, 4.0], 0.5).numpy().tolist()
    2.0
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
    q = dispatch.convert(q, dtype, like=x)
    if len(q.shape) > 1:
        raise ValueError(f"quantile: q is a number or a vector. Received: shape={tuple(q.shape)}")
    result = _between(sort(lines), q, method)
    if len(q.shape) == 1:
        result = shaping.moveaxis(result, -1, 0)
    if keepdims:
        sizes = [1 if a in axes else x.shape[a] for a in range(len(x.shape))]
        result = shaping.reshape(result, [*q.shape, *sizes])
    # A line with NaN has no quantile.
    lost = reduction.any(elementwise.isnan(x), axis, keepdims)
    return elementwise.where(lost, creation.full_like(result, float("nan")), result)


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
    last = lines.shape[-1] - 1
    place = elementwise.multiply(q, float(last))
    down, up = elementwise.floor(place), elementwise.ceil(place)
    if method == "nearest":
        down = up = elementwise.round(place)
    first = shaping.take(lines, creation.cast(down, "int32"), -1)
    second = shaping.take(lines, creation.cast(up, "int32"), -1)
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
    """As `quantile`, with q from 0 to 100."""
    x = dispatch.convert(x)
    share = elementwise.divide(dispatch.convert(q, dtypes.float_result_type(x.dtype)), 100)
    return quantile(x, share, axis, method, keepdims)


@op
def median(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The middle element along axes, or the mean of the two in the middle."""
    return quantile(x, 0.5, axis, "linear", keepdims)


@op
def nanquantile(
    x: Any, q: Any, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """As `quantile` (with one q), but of the elements that are not NaN; NaN where none is left."""
    x = dispatch.convert(x)
    x = dispatch.convert(x, dtypes.float_result_type(x.dtype))
    q = dispatch.convert(q, x.dtype, like=x)
    axes = reduction._axes(axis, x)
    lines = _lines(x, axes)
    count = reduction.sum(
        creation.cast(elementwise.logical_not(elementwise.isnan(lines)), "int32"), -1, True
    )
    lines = sort(lines)  # NaN comes last
    many = shaping.reshape(q, [1] * (len(lines.shape) - 1) + [-1])
    last = creation.cast(elementwise.maximum(elementwise.subtract(count, 1), 0), x.dtype)
    place = elementwise.multiply(last, many)
    result = _at_places(lines, place, method)
    result = shaping.moveaxis(result, -1, 0) if q.shape else shaping.squeeze(result, -1)
    if keepdims:
        sizes = [1 if a in axes else x.shape[a] for a in range(len(x.shape))]
        result = shaping.reshape(result, [*q.shape, *sizes])
    return result


def _at_places(lines: Any, place: Any, method: str) -> Any:
    if method not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise ValueError(f"nanquantile: method={method!r} is not known.")
    down, up = elementwise.floor(place), elementwise.ceil(place)
    if method == "nearest":
        down = up = elementwise.round(place)
    first = take_along_axis(lines, creation.cast(down, "int32"), -1)
    second = take_along_axis(lines, creation.cast(up, "int32"), -1)
    if method in ("lower", "nearest"):
        return first
    if method == "higher":
        return second
    share = 0.5 if method == "midpoint" else elementwise.subtract(place, down)
    return elementwise.add(first, elementwise.multiply(elementwise.subtract(second, first), share))


@op
def nanpercentile(
    x: Any, q: Any, axis: Axis = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """As `nanquantile`, with q from 0 to 100."""
    x = dispatch.convert(x)
    share = elementwise.divide(dispatch.convert(q, dtypes.float_result_type(x.dtype)), 100)
    return nanquantile(x, share, axis, method, keepdims)


@op
def nanmedian(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """As `median`, but of the elements that are not NaN."""
    return nanquantile(x, 0.5, axis, "linear", keepdims)

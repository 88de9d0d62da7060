"""Sorting, the largest elements and searches, all built on the core's argsort."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kerascnn import dtypes, file_budget
from kerascnn.ops import (
    creation,
    dispatch,
    elementwise,
    indexing,
    reduction,
    shaping,
)
from kerascnn.ops.shaping import _axis
from kerascnn.symbolic.operation import op

__all__ = [
    "argpartition",
    "argsort",
    "digitize",
    "in_top_k",
    "searchsorted",
    "sort",
    "take_along_axis",
    "top_k",
]


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
    """The positions of an axis' elements from the smallest to the largest.

    Equal elements keep their order; NaN comes last.

    Args:
        x: Tensor of any shape and dtype.
        axis: The axis; a negative one counts from the end. None sorts the flattened tensor.

    Returns:
        int32 positions in the shape of `x`, or a vector for an axis of None.

    Raises:
        ValueError: for an axis that does not exist.

    Example:

    >>> from kerascnn import ops
    >>> ops.argsort([3.0, 1.0, 2.0]).numpy().tolist()
    [1, 2, 0]
    """
    return _order(x, axis, False, "argsort")[1]


@op
def sort(x: Any, axis: int | None = -1) -> Any:
    """The elements along an axis from the smallest to the largest; NaN comes last.

    Args:
        x: Tensor of any shape and dtype; False is less than True.
        axis: The axis; a negative one counts from the end. None sorts the flattened tensor.

    Returns:
        A tensor of the shape of `x`, or a vector for an axis of None, in the dtype of `x`.

    Raises:
        ValueError: for an axis that does not exist.

    Example:

    >>> from kerascnn import ops
    >>> ops.sort([[3, 1, 2], [0, 5, 4]]).numpy().tolist()
    [[1, 2, 3], [0, 4, 5]]
    >>> ops.sort([[3, 1, 2], [0, 5, 4]], axis=None).numpy().tolist()
    [0, 1, 2, 3, 4, 5]
    """
    x, order, axis = _order(x, axis, False, "sort")
    return take_along_axis(x, order, axis)


@op
def argpartition(x: Any, kth: int, axis: int | None = -1) -> Any:
    """Positions such that the kth is where it is in order, smaller ones before it.

    They are all in order here, as `argsort` gives them, which code should not count on.

    Args:
        x: Tensor of any shape and dtype.
        kth: The place that is right; a negative one counts from the end of the axis.
        axis: The axis; None stands for the flattened tensor.

    Returns:
        int32 positions in the shape of `x`, or a vector for an axis of None.

    Raises:
        ValueError: for an axis or a place that does not exist.

    Example:

    >>> from kerascnn import ops
    >>> places = ops.argpartition([7, 3, 9, 1], 1)
    >>> ops.take([7, 3, 9, 1], places[:2]).numpy().tolist()  # the two smallest
    [1, 3]
    """
    x, order, axis = _order(x, axis, False, "argpartition")
    if not -x.shape[axis] <= kth < x.shape[axis]:
        raise ValueError(f"argpartition: kth={kth} is out of an axis of {x.shape[axis]} elements.")
    return order


@op
def take_along_axis(x: Any, indices: Any, axis: int | None = None) -> Any:
    """For each place of `indices`, the element of x there but for the index along the axis.

    It brings results of `argsort` and `argmax` back to elements.

    Args:
        x: Tensor of any dtype.
        indices: Integers, with as many axes as x (the others broadcast); negative ones count from
            the end. One out of range counts as the nearest that there is.
        axis: By default both are flattened.

    Returns:
        A tensor in the dtype of `x` and the shape of `indices`, broadcast to the other axes of `x`.

    Raises:
        TypeError: for indices that are no integers.
        ValueError: for another number of axes, or sizes that don't broadcast.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.take_along_axis.html

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
    # These are places in the flattened tensor.
    wide = math.prod(max(n, 1) for n in x.shape) > np.iinfo("int32").max
    indices = dispatch.convert(indices, "int64") if wide else indices
    place = elementwise.multiply(indices, math.prod(x.shape[axis + 1 :]))
    starts = _line_starts(x, kept, "int64" if wide else "int32")
    if starts is not None:
        place = elementwise.add(place, starts)
    return dispatch.apply_one("gather", [shaping.ravel(x), place], {"axis": 0})


def _line_starts(x: Any, axes: list[int], dtype: str) -> Any:
    """Where lines begin in flattened `x`, by their indices along `axes`; None for one line.

    Each axis has a number for each of its indices. That they are added up by ops keeps those of a
    large tensor out of the graph.
    """
    starts, shape = None, x.shape
    for axis in axes:
        if shape[axis] != 1:
            file_budget.check_positions(shape[axis], "starts of lines")
            numbers = np.arange(shape[axis], dtype=dtype) * math.prod(shape[axis + 1 :])
            numbers = numbers.reshape([-1 if a == axis else 1 for a in range(len(shape))])
            numbers = dispatch.convert(numbers, like=x)
            starts = numbers if starts is None else elementwise.add(starts, numbers)
    return starts


class TopK(NamedTuple):
    """The largest elements of each line, and their positions."""

    values: Any
    indices: Any


@op
def top_k(x: Any, k: int, sorted: bool = True) -> Any:
    """The k largest elements along the last axis and their positions, the first of equals first.

    NaN counts as larger than every number.

    Args:
        x: Tensor of any dtype with at least one axis.
        k: How many, from 0 to the length of the last axis.
        sorted: Has no effect: the largest one comes first in any case.

    Returns:
        A named tuple (values, indices), each (..., k): the values in the dtype of `x`, the indices
        int32.

    Raises:
        ValueError: for another k.

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
    """Tells whether the target is among the k classes with the largest predictions.

    That is so where fewer than k predictions are larger than its own, which is not NaN; of equal
    predictions at the limit, all are in.

    Args:
        targets: (n,) integers. A class that does not exist is never among them.
        predictions: (n, classes)
        k: How many classes count.

    Returns:
        (n,) bool

    Example:

    >>> from kerascnn import ops
    >>> scores = [[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]]
    >>> ops.in_top_k([2, 1], scores, k=2).numpy().tolist()
    [True, False]
    """
    predictions = dispatch.convert(predictions)
    targets = creation.cast(targets, "int32")
    own = take_along_axis(predictions, shaping.expand_dims(targets, -1), -1)
    above = reduction.sum(creation.cast(elementwise.greater(predictions, own), "int32"), -1)
    is_number = elementwise.logical_not(elementwise.isnan(shaping.squeeze(own, -1)))
    # Without this, an index out of range would count as the nearest class.
    is_class = elementwise.logical_and(
        elementwise.greater_equal(targets, 0), elementwise.less(targets, predictions.shape[-1])
    )
    is_in = elementwise.logical_and(elementwise.less(above, k), is_number)
    return elementwise.logical_and(is_in, is_class)


@op
def searchsorted(sorted_sequence: Any, values: Any, side: str = "left") -> Any:
    """Returns where each value would have to be put into a sorted vector to keep it sorted.

    Each value is compared with each element, which suits short sequences.

    Args:
        sorted_sequence: (n,), from the smallest element to the largest, NaN last. It is not
            checked.
        values: Any shape; NaN belongs behind all numbers.
        side: "left" puts it before equal elements, "right" behind them.

    Returns:
        int32 in the shape of `values`, from 0 to n.

    Raises:
        ValueError: for a sequence that is no vector, or another side.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.searchsorted.html

    Example:

    >>> from kerascnn import ops
    >>> ops.searchsorted([1, 3, 5], [0, 3, 9]).numpy().tolist()
    [0, 1, 3]
    >>> ops.searchsorted([1, 3, 5], [0, 3, 9], side="right").numpy().tolist()
    [0, 2, 3]
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
    is_floating = dtypes.is_float(sequence.dtype)
    if side == "right":
        is_before = elementwise.less_equal(sequence, values)
        if is_floating:
            is_before = elementwise.logical_or(is_before, elementwise.isnan(values))
    else:
        is_before = elementwise.logical_not(elementwise.greater_equal(sequence, values))
        if is_floating:
            is_number = elementwise.logical_not(elementwise.isnan(sequence))
            is_before = elementwise.logical_and(is_before, is_number)
    return reduction.sum(creation.cast(is_before, "int32"), -1)


@op
def digitize(x: Any, bins: Any) -> Any:
    """The number of the bin that each element lies in: bins[i - 1] <= x < bins[i].

    Args:
        x: Tensor of any shape.
        bins: (n,), the limits of the bins from the smallest to the largest.

    Returns:
        int32 in the shape of `x`: 0 below the first limit, n from the last one on and for NaN.

    Raises:
        ValueError: for limits that are no vector.

    Example:

    >>> from kerascnn import ops
    >>> ops.digitize([0.5, 1.0, 7.0], [1.0, 2.0, 3.0]).numpy().tolist()
    [0, 1, 3]
    """
    return searchsorted(bins, x, "right")

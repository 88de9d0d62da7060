"""Reductions and running results that leave NaN out."""

from __future__ import annotations

from typing import Any

from kerascnn import dtypes
from kerascnn.ops import creation, dispatch, elementwise, reduction
from kerascnn.ops.reduction import Axis
from kerascnn.ops.statistics import cumprod, cumsum, prod
from kerascnn.symbolic.operation import op

__all__ = [
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
]


def _without_nan(x: Any, value: float) -> tuple[Any, Any]:
    """Returns the elements with `value` in place of NaN, and where they are not NaN."""
    x = dispatch.convert(x)
    if not dtypes.is_float(x.dtype):
        return x, creation.ones_like(x, "bool")
    lost = elementwise.isnan(x)
    return (
        elementwise.where(lost, dispatch.convert(value, x.dtype), x),
        elementwise.logical_not(lost),
    )


@op
def nansum(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum of the elements that are not NaN; 0 where there is none.

    Args:
        x: Tensor of any shape and dtype.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.

    Returns:
        The shape of `x` without the axes, in its dtype; bool and integers shorter than int32
        are added up as int32.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.nansum([1.0, float("nan"), 3.0]).numpy().tolist()
    4.0
    """
    return reduction.sum(_without_nan(x, 0.0)[0], axis, keepdims)


@op
def nanprod(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The product of the elements that are not NaN; 1 where there is none.

    Args:
        x: Tensor of any shape and dtype.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.

    Returns:
        The shape of `x` without the axes, in its dtype; bool and integers shorter than int32
        are multiplied as int32.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.nanprod([2.0, float("nan"), 3.0]).numpy().tolist()
    6.0
    """
    return prod(_without_nan(x, 1.0)[0], axis, keepdims)


@op
def nancumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """The running sums, NaN counting as 0.

    Args:
        x: Tensor of any shape and dtype.
        axis: One axis, or None to flatten `x`.
        dtype: What `x` is cast to first, by default int32 for bool and else nothing.

    Returns:
        The shape of `x`, or one axis of all its elements where `axis` is None.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.nancumsum([1.0, float("nan"), 2.0]).numpy().tolist()
    [1.0, 1.0, 3.0]
    """
    return cumsum(_without_nan(x, 0.0)[0], axis, dtype)


@op
def nancumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """The running products, NaN counting as 1.

    Args:
        x: Tensor of any shape and dtype.
        axis: One axis, or None to flatten `x`.
        dtype: What `x` is cast to first, by default int32 for bool and else nothing.

    Returns:
        The shape of `x`, or one axis of all its elements where `axis` is None.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.nancumprod([2.0, float("nan"), 3.0]).numpy().tolist()
    [2.0, 2.0, 6.0]
    """
    return cumprod(_without_nan(x, 1.0)[0], axis, dtype)


@op
def nanmean(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The mean of the elements that are not NaN; NaN where there is none.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.

    Returns:
        A floating tensor in the shape of `x` without the axes.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.nanmean([1.0, float("nan"), 3.0]).numpy().tolist()
    2.0
    """
    values, known = _without_nan(x, 0.0)
    values = dispatch.convert_floating(values)
    count = reduction.sum(creation.cast(known, values.dtype), axis, keepdims)
    return elementwise.divide(reduction.sum(values, axis, keepdims), count)


@op
def nanvar(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The population variance of the elements that are not NaN; NaN where there is none.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.

    Returns:
        A floating tensor in the shape of `x` without the axes.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.nanvar([1.0, float("nan"), 3.0]).numpy().tolist()
    1.0
    """
    values, known = _without_nan(x, 0.0)
    values = dispatch.convert_floating(values)
    count = reduction.sum(creation.cast(known, values.dtype), axis, True)
    mean = elementwise.divide(reduction.sum(values, axis, True), count)
    apart = elementwise.where(known, elementwise.subtract(values, mean), 0.0)
    variance = elementwise.divide(reduction.sum(elementwise.square(apart), axis, True), count)
    return variance if keepdims else reduction.sum(variance, axis)


@op
def nanstd(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The population standard deviation of the elements that are not NaN; NaN where there is none.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.

    Returns:
        A floating tensor in the shape of `x` without the axes.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.nanstd([1.0, float("nan"), 3.0]).numpy().tolist()
    1.0
    """
    return elementwise.sqrt(nanvar(x, axis, keepdims))


def _nan_extreme(name: str, x: Any, axis: Axis, keepdims: bool) -> Any:
    sign = -1.0 if name == "max" else 1.0
    values, known = _without_nan(x, sign * float("inf"))
    result = getattr(reduction, name)(values, axis, keepdims)
    if not dtypes.is_float(result.dtype):
        return result
    any_known = reduction.any(known, axis, keepdims)
    return elementwise.where(any_known, result, creation.full_like(result, float("nan")))


@op
def nanmax(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest of the elements that are not NaN; NaN where there is none.

    Args:
        x: Tensor of any shape and dtype.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.

    Returns:
        The shape of `x` without the axes, in its dtype.

    Raises:
        ValueError: where `x` has no such axis, or no element along it.

    Example:

    >>> from kerascnn import ops
    >>> ops.nanmax([1.0, float("nan"), 3.0]).numpy().tolist()
    3.0
    """
    return _nan_extreme("max", x, axis, keepdims)


@op
def nanmin(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest of the elements that are not NaN; NaN where there is none.

    Args:
        x: Tensor of any shape and dtype.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.

    Returns:
        The shape of `x` without the axes, in its dtype.

    Raises:
        ValueError: where `x` has no such axis, or no element along it.

    Example:

    >>> from kerascnn import ops
    >>> ops.nanmin([1.0, float("nan"), 3.0]).numpy().tolist()
    1.0
    """
    return _nan_extreme("min", x, axis, keepdims)


@op
def nanargmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Returns where the largest of the elements that are not NaN is; -1 where there is none.

    NaN counts as -infinity, so that its place can be the result where nothing is larger than that.

    Args:
        x: Tensor of any shape and dtype.
        axis: One axis, by default the position in the flattened tensor.
        keepdims: Whether the axis stays, with size 1.

    Returns:
        An int32 tensor in the shape of `x` without the axis.

    Raises:
        ValueError: where `x` has no such axis, or no element along it.

    Example:

    >>> from kerascnn import ops
    >>> ops.nanargmax([1.0, float("nan"), 3.0]).numpy().tolist()
    2
    """
    values, known = _without_nan(x, -float("inf"))
    place = reduction.argmax(values, axis, keepdims)
    return elementwise.where(reduction.any(known, axis, keepdims), place, -1)


@op
def nanargmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Returns where the smallest of the elements that are not NaN is; -1 where there is none.

    NaN counts as infinity, so that its place can be the result where nothing is smaller than that.

    Args:
        x: Tensor of any shape and dtype.
        axis: One axis, by default the position in the flattened tensor.
        keepdims: Whether the axis stays, with size 1.

    Returns:
        An int32 tensor in the shape of `x` without the axis.

    Raises:
        ValueError: where `x` has no such axis, or no element along it.

    Example:

    >>> from kerascnn import ops
    >>> ops.nanargmin([float("nan"), 3.0, 1.0]).numpy().tolist()
    2
    """
    values, known = _without_nan(x, float("inf"))
    place = reduction.argmin(values, axis, keepdims)
    return elementwise.where(reduction.any(known, axis, keepdims), place, -1)

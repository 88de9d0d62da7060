"""Sums, means and extremes along axes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.ops import dispatch, elementwise
from kerascnn.symbolic.operation import op

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "logsumexp",
    "max",
    "mean",
    "min",
    "std",
    "sum",
    "var",
]

Axis = int | Sequence[int] | None


def _axes(axis: Axis, x: Any) -> list[int]:
    """Returns the axes from 0 on, or all of them for None."""
    rank = len(x.shape)
    if axis is None:
        return list(range(rank))
    parts: Any = [axis] if np.ndim(axis) == 0 else axis
    try:
        chosen = [operator.index(a) for a in parts]
    except TypeError:
        raise TypeError(f"An axis is a whole number. Received: axis={axis!r}") from None
    for entry in chosen:
        if not -rank <= entry < rank:
            raise ValueError(f"axis {entry} does not exist in a tensor of shape {tuple(x.shape)}")
    axes = sorted({entry % rank for entry in chosen})
    if len(axes) != len(chosen):
        raise ValueError(
            f"An axis is named twice for a tensor of shape {tuple(x.shape)}. Received: axis={axis}"
        )
    return axes


def _reduce(name: str, x: Any, axis: Axis, keepdims: bool) -> Any:
    axes = _axes(axis, x)
    if not axes:  # for the core, "no axes" means all
        return x
    return dispatch.apply_one(name, [x], {"axes": axes, "keepdims": bool(keepdims)})


@op
def sum(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum along axes; 0 for no elements.

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
    >>> ops.sum([[1.0, 2.0], [3.0, 4.0]], axis=0).numpy().tolist()
    [4.0, 6.0]
    """
    x = dispatch.convert(x)
    if x.dtype in ("bool", "uint8", "int8", "int16"):
        x = dispatch.convert(x, "int32")
    return _reduce("reduce_sum", x, axis, keepdims)


@op
def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The mean along axes; NaN for no elements.

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
    >>> ops.mean([[1, 2], [3, 4]], axis=1).numpy().tolist()
    [1.5, 3.5]
    """
    return _reduce("reduce_mean", dispatch.convert_floating(x), axis, keepdims)


@op
def var(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The population variance along axes: the mean square of the distances from the mean.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.

    Returns:
        A floating tensor in the shape of `x` without the axes; NaN for no elements.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.var([1.0, 3.0, 5.0, 7.0]).numpy().tolist()
    5.0
    """
    x = dispatch.convert_floating(x)
    centred = elementwise.subtract(x, _reduce("reduce_mean", x, axis, True))
    return _reduce("reduce_mean", elementwise.square(centred), axis, keepdims)


@op
def std(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The population standard deviation along axes, the root of `var`.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.

    Returns:
        A floating tensor in the shape of `x` without the axes; NaN for no elements.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.std([[1.0, 3.0], [2.0, 8.0]], axis=1).numpy().tolist()
    [1.0, 3.0]
    """
    return elementwise.sqrt(var(x, axis, keepdims))


@op
def max(x: Any, axis: Axis = None, keepdims: bool = False, initial: Any = None) -> Any:
    """The largest element along axes; NaN where one of them is NaN.

    Args:
        x: Tensor of any shape and dtype.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.
        initial: A number that no result is below, cast to the dtype of `x`.

    Returns:
        The shape of `x` without the axes, in its dtype.

    Raises:
        ValueError: where `x` has no such axis, or no element along it (even with `initial`).

    Example:

    >>> from kerascnn import ops
    >>> ops.max([[1, 5], [7, 3]], axis=0).numpy().tolist()
    [7, 5]
    """
    x = dispatch.convert(x)
    result = _bool_safe("reduce_max", x, axis, keepdims)
    if initial is None:
        return result
    return elementwise.maximum(result, dispatch.convert(initial, x.dtype))


@op
def min(x: Any, axis: Axis = None, keepdims: bool = False, initial: Any = None) -> Any:
    """The smallest element along axes; NaN where one of them is NaN.

    Args:
        x: Tensor of any shape and dtype.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.
        initial: A number that no result is above, cast to the dtype of `x`.

    Returns:
        The shape of `x` without the axes, in its dtype.

    Raises:
        ValueError: where `x` has no such axis, or no element along it (even with `initial`).

    Example:

    >>> from kerascnn import ops
    >>> ops.min([[1, 5], [7, 3]], axis=0).numpy().tolist()
    [1, 3]
    """
    x = dispatch.convert(x)
    result = _bool_safe("reduce_min", x, axis, keepdims)
    if initial is None:
        return result
    return elementwise.minimum(result, dispatch.convert(initial, x.dtype))


def _bool_safe(name: str, x: Any, axis: Axis, keepdims: bool) -> Any:
    """Computes extremes of bool as uint8, for which there are kernels."""
    if x.dtype != "bool":
        return _reduce(name, x, axis, keepdims)
    return dispatch.convert(_reduce(name, dispatch.convert(x, "uint8"), axis, keepdims), "bool")


def _of_nothing(function: Callable[..., Any], x: Any, axis: Axis, keepdims: bool) -> Any:
    """Makes the op return NumPy's result for no elements."""
    axes = axis if axis is None or isinstance(axis, (int, np.integer)) else tuple(axis)
    found = function(np.empty(x.shape, bool), axis=axes, keepdims=keepdims)
    return dispatch.convert(np.asarray(found), like=x)


@op
def all(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """True where all elements along the axes are True, and for no elements.

    Args:
        x: Tensor of any shape and dtype; numbers count as True unless they are 0.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.

    Returns:
        A bool tensor in the shape of `x` without the axes.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.all([[True, False], [True, True]], axis=1).numpy().tolist()
    [False, True]
    """
    x = dispatch.convert(x, "bool")
    if 0 in x.shape:
        return _of_nothing(np.all, x, axis, keepdims)
    return _bool_safe("reduce_min", x, axis, keepdims)


@op
def any(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """True where at least one element along the axes is True; False for no elements.

    Args:
        x: Tensor of any shape and dtype; numbers count as True unless they are 0.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.

    Returns:
        A bool tensor in the shape of `x` without the axes.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.any([[True, False], [False, False]], axis=1).numpy().tolist()
    [True, False]
    """
    x = dispatch.convert(x, "bool")
    if 0 in x.shape:
        return _of_nothing(np.any, x, axis, keepdims)
    return _bool_safe("reduce_max", x, axis, keepdims)


@op
def count_nonzero(x: Any, axis: Axis = None) -> Any:
    """Returns how many elements along the axes are not 0.

    Args:
        x: Tensor of any shape and dtype. NaN is not 0.
        axis: One or several axes, by default all.

    Returns:
        An int32 tensor in the shape of `x` without the axes.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.count_nonzero([[0, 1], [2, 3]], axis=0).numpy().tolist()
    [1, 2]
    """
    return sum(dispatch.convert(x, "bool"), axis)


@op
def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Returns where the largest element is: the first of equals, or of NaN where there is one.

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
    >>> ops.argmax([[0.1, 0.9], [0.8, 0.2]], axis=-1).numpy().tolist()
    [1, 0]
    """
    x = dispatch.convert(x)
    if x.dtype == "bool":
        x = dispatch.convert(x, "uint8")
    rank = len(x.shape)
    shape = list(x.shape)
    if axis is None:
        flat = dispatch.apply_one("reshape", [x], {"shape": [_size(shape)]})
        result, kept = dispatch.apply_one("argmax", [flat], {"axis": 0}), [1] * rank
    else:
        axis = _axes(axis, x)[0]
        result = dispatch.apply_one("argmax", [x], {"axis": axis})
        kept = [*shape[:axis], 1, *shape[axis + 1 :]]
    return dispatch.apply_one("reshape", [result], {"shape": kept}) if keepdims else result


@op
def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Returns where the smallest element is: the first of equals, or of NaN where there is one.

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
    >>> ops.argmin([[0.1, 0.9], [0.8, 0.2]], axis=-1).numpy().tolist()
    [0, 1]
    """
    x = dispatch.convert(x)
    if x.dtype in ("bool", "uint8"):
        x = dispatch.convert(x, "int16")
    # -1 - x exists for each integer; -x does not for the lowest one.
    is_float = dtypes.is_float(x.dtype)
    opposite = elementwise.negative(x) if is_float else elementwise.subtract(-1, x)
    return argmax(opposite, axis, keepdims)


@op
def logsumexp(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """log(sum(exp(x))) along axes, without overflow; -infinity for no elements.

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
    >>> print(ops.logsumexp([[100.0, 100.0], [0.0, 0.0]], axis=1).numpy().round(3))
    [100.693   0.693]
    """
    x = dispatch.convert_floating(x)
    if _size([x.shape[a] for a in _axes(axis, x)]) == 0:
        return elementwise.log(_reduce("reduce_sum", x, axis, keepdims))
    largest = _reduce("reduce_max", x, axis, True)
    # Infinities are not subtracted, since their difference is NaN.
    largest = elementwise.where(elementwise.isfinite(largest), largest, 0)
    sums = _reduce("reduce_sum", elementwise.exp(elementwise.subtract(x, largest)), axis, True)
    result = elementwise.add(elementwise.log(sums), largest)
    return result if keepdims else _reduce("reduce_sum", result, axis, False)


def _size(shape: Sequence[int]) -> int:
    product = 1
    for extent in shape:
        product *= extent
    return product

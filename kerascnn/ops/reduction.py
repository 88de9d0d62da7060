"""Sums, means and extremes along axes."""

from __future__ import annotations

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
    chosen = [axis] if isinstance(axis, int) else list(axis)
    for entry in chosen:
        if not -rank <= entry < rank:
            raise ValueError(f"axis {entry} does not exist in a tensor of shape {tuple(x.shape)}")
    return sorted({entry % rank for entry in chosen})


def _reduce(name: str, x: Any, axis: Axis, keepdims: bool) -> Any:
    axes = _axes(axis, x)
    if not axes:  # for the core, "no axes" means all
        return x
    return dispatch.apply_one(name, [x], {"axes": axes, "keepdims": bool(keepdims)})


def _floating(x: Any) -> Any:
    x = dispatch.convert(x)
    return x if dtypes.is_float(x.dtype) else dispatch.convert(x, dtypes.float_result_type(x.dtype))


@op
def sum(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum along axes; integers shorter than int32 are added up as int32.

    Args:
        x: Input.
        axis: One or several axes, by default all.
        keepdims: Whether the axes stay, with size 1.

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
    """The mean along axes; of integers, as `floatx`."""
    return _reduce("reduce_mean", _floating(x), axis, keepdims)


@op
def var(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The population variance along axes."""
    x = _floating(x)
    centred = elementwise.subtract(x, _reduce("reduce_mean", x, axis, True))
    return _reduce("reduce_mean", elementwise.square(centred), axis, keepdims)


@op
def std(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The population standard deviation along axes."""
    return elementwise.sqrt(var(x, axis, keepdims))


@op
def max(x: Any, axis: Axis = None, keepdims: bool = False, initial: Any = None) -> Any:
    """The largest element along axes, not below `initial` where that is given."""
    x = dispatch.convert(x)
    result = _bool_safe("reduce_max", x, axis, keepdims)
    if initial is None:
        return result
    return elementwise.maximum(result, dispatch.convert(initial, x.dtype))


@op
def min(x: Any, axis: Axis = None, keepdims: bool = False, initial: Any = None) -> Any:
    """The smallest element along axes, not above `initial` where that is given."""
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
    axes = axis if axis is None or isinstance(axis, int) else tuple(axis)
    found = function(np.empty(x.shape, bool), axis=axes, keepdims=keepdims)
    return dispatch.convert(np.asarray(found), like=x)


@op
def all(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """True where all elements along the axes are True; numbers count as True unless they are 0."""
    x = dispatch.convert(x, "bool")
    if 0 in x.shape:
        return _of_nothing(np.all, x, axis, keepdims)
    return _bool_safe("reduce_min", x, axis, keepdims)


@op
def any(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """True where at least one element along the axes is True, or a number other than 0."""
    x = dispatch.convert(x, "bool")
    if 0 in x.shape:
        return _of_nothing(np.any, x, axis, keepdims)
    return _bool_safe("reduce_max", x, axis, keepdims)


@op
def count_nonzero(x: Any, axis: Axis = None) -> Any:
    """Returns how many elements along the axes are not 0, as int32."""
    return sum(dispatch.convert(x, "bool"), axis)


@op
def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Returns where the largest element is (the first of equals), as int32.

    Args:
        x: Input.
        axis: By default the position in the flattened tensor.
        keepdims: Whether the axis stays, with size 1.

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
    """Returns where the smallest element is (the first of equals), as int32."""
    x = dispatch.convert(x)
    if x.dtype in ("bool", "uint8"):
        x = dispatch.convert(x, "int16")
    return argmax(elementwise.negative(x), axis, keepdims)


@op
def logsumexp(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """log(sum(exp(x))) along axes, without overflow; minus infinity where there is no element."""
    x = _floating(x)
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

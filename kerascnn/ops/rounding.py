"""Whole numbers, or numbers of some decimals, next to each element."""

from __future__ import annotations

import builtins
from typing import Any

from kerascnn import dtypes
from kerascnn.ops import dispatch, elementwise
from kerascnn.ops.elementwise import _apply_floating, _unary
from kerascnn.symbolic.operation import op

__all__ = [
    "ceil",
    "floor",
    "round",
    "trunc",
]


@op
def floor(x: Any) -> Any:
    """The largest whole number not above x, as a float.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.floor([-1.5, 1.5]).numpy().tolist()
    [-2.0, 1.0]
    """
    return _apply_floating("floor", x)


@op
def ceil(x: Any) -> Any:
    """The smallest whole number not below x, as a float.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.ceil([-1.5, 1.25]).numpy().tolist()
    [-1.0, 2.0]
    """
    return _apply_floating("ceil", x)


@op
def trunc(x: Any) -> Any:
    """The whole number next to x towards 0.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        The shape and dtype of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.trunc([-1.75, 1.75]).numpy().tolist()
    [-1.0, 1.0]
    """
    x = dispatch.convert(x)
    if not dtypes.is_float(x.dtype):
        return x
    return elementwise.where(elementwise.less(x, 0), ceil(x), floor(x))


def round(x: Any, decimals: int = 0) -> Any:
    """The nearest number with so many decimals, halves going to the even neighbour.

    Args:
        x: Tensor of any shape and dtype.
        decimals: Digits that are kept after the point; with -1 the results are multiples of 10,
            with -2 of 100, and so on.

    Returns:
        The shape and dtype of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.round([0.5, 1.5, -2.25]).numpy().tolist()
    [0.0, 2.0, -2.0]
    >>> ops.round([1234, 1250], -2).numpy().tolist()
    [1200, 1200]
    """
    return _round(x, decimals)


@op
def _round(x: Any, decimals: int) -> Any:
    x = dispatch.convert(x)
    if not dtypes.is_float(x.dtype):
        if decimals >= 0 or x.dtype == "bool":
            return x
        # float64 holds integers exactly up to 2^53.
        return dispatch.convert(_round(dispatch.convert(x, "float64"), decimals), x.dtype)
    if decimals == 0:
        return _unary("round", x)
    scale = 10.0 ** builtins.abs(decimals)
    if decimals < 0:
        return elementwise.multiply(_unary("round", elementwise.divide(x, scale)), scale)
    return elementwise.divide(_unary("round", elementwise.multiply(x, scale)), scale)

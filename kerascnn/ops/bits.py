"""Functions of the bits of integers."""

from __future__ import annotations

from typing import Any

from kerascnn import dtypes
from kerascnn.ops import comparisons, dispatch
from kerascnn.symbolic.operation import op

__all__ = [
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "left_shift",
    "right_shift",
]


def _bits(name: str, logical: Any, x: Any, y: Any) -> Any:
    x, y = dispatch.operands(x, y)
    if dtypes.is_float(x.dtype):
        raise TypeError(f"{name}: bits are those of integers. Received: {x.dtype}")
    if x.dtype != "bool":
        return dispatch.apply_one(name, [x, y])
    if logical is not None:
        return logical(x, y)
    return dispatch.apply_one(name, [dispatch.convert(x, "int32"), dispatch.convert(y, "int32")])


@op
def bitwise_and(x: Any, y: Any) -> Any:
    """The bits that both integers have.

    Args:
        x: Tensor of integers or bool, of any shape.
        y: The same, in a shape that broadcasts with that of `x`.

    Returns:
        The broadcast shape, in the dtype that both promote to.

    Raises:
        TypeError: for floats.

    Example:

    >>> from kerascnn import ops
    >>> ops.bitwise_and([6], [3]).numpy().tolist()
    [2]
    """
    return _bits("bitwise_and", comparisons.logical_and, x, y)


@op
def bitwise_or(x: Any, y: Any) -> Any:
    """The bits that at least one of the integers has.

    Args:
        x: Tensor of integers or bool, of any shape.
        y: The same, in a shape that broadcasts with that of `x`.

    Returns:
        The broadcast shape, in the dtype that both promote to.

    Raises:
        TypeError: for floats.

    Example:

    >>> from kerascnn import ops
    >>> ops.bitwise_or([6], [3]).numpy().tolist()
    [7]
    """
    return _bits("bitwise_or", comparisons.logical_or, x, y)


@op
def bitwise_xor(x: Any, y: Any) -> Any:
    """The bits that exactly one of the integers has.

    Args:
        x: Tensor of integers or bool, of any shape.
        y: The same, in a shape that broadcasts with that of `x`.

    Returns:
        The broadcast shape, in the dtype that both promote to.

    Raises:
        TypeError: for floats.

    Example:

    >>> from kerascnn import ops
    >>> ops.bitwise_xor([6], [3]).numpy().tolist()
    [5]
    """
    return _bits("bitwise_xor", comparisons.logical_xor, x, y)


@op
def bitwise_not(x: Any) -> Any:
    """Inverts all bits; of signed integers, -x - 1.

    Args:
        x: Tensor of integers or bool, of any shape.

    Returns:
        The shape and dtype of `x`.

    Raises:
        TypeError: for floats.

    Example:

    >>> from kerascnn import ops
    >>> ops.bitwise_not([0, 5]).numpy().tolist()
    [-1, -6]
    """
    x = dispatch.convert(x)
    if x.dtype == "bool":
        return comparisons.logical_not(x)
    ones = dispatch.convert(255 if x.dtype == "uint8" else -1, x.dtype, like=x)
    return _bits("bitwise_xor", None, x, ones)


def bitwise_invert(x: Any) -> Any:
    """The same as `bitwise_not`.

    Args:
        x: Tensor of integers or bool, of any shape.

    Returns:
        The shape and dtype of `x`.

    Raises:
        TypeError: for floats.

    Example:

    >>> from kerascnn import ops
    >>> ops.bitwise_invert([0, 5]).numpy().tolist()
    [-1, -6]
    """
    return bitwise_not(x)


@op
def bitwise_left_shift(x: Any, y: Any) -> Any:
    """Bits moved y places up; 0 where y is negative or as large as the number of bits.

    Args:
        x: Tensor of integers or bool, of any shape.
        y: The same, in a shape that broadcasts with that of `x`.

    Returns:
        The broadcast shape, in the dtype that both promote to; bool becomes int32.

    Raises:
        TypeError: for floats.

    Example:

    >>> from kerascnn import ops
    >>> ops.bitwise_left_shift([1, 3], 2).numpy().tolist()
    [4, 12]
    """
    return _bits("left_shift", None, x, y)


def left_shift(x: Any, y: Any) -> Any:
    """The same as `bitwise_left_shift`.

    Args:
        x: Tensor of integers or bool, of any shape.
        y: The same, in a shape that broadcasts with that of `x`.

    Returns:
        The broadcast shape, in the dtype that both promote to; bool becomes int32.

    Raises:
        TypeError: for floats.

    Example:

    >>> from kerascnn import ops
    >>> ops.left_shift([1, 3], 2).numpy().tolist()
    [4, 12]
    """
    return bitwise_left_shift(x, y)


@op
def bitwise_right_shift(x: Any, y: Any) -> Any:
    """Bits moved y places down; the sign stays.

    Args:
        x: Tensor of integers or bool, of any shape.
        y: The same, in a shape that broadcasts with that of `x`.

    Returns:
        The broadcast shape, in the dtype that both promote to; bool becomes int32.

    Raises:
        TypeError: for floats.

    Example:

    >>> from kerascnn import ops
    >>> ops.bitwise_right_shift([8, -8], 1).numpy().tolist()
    [4, -4]
    """
    return _bits("right_shift", None, x, y)


def right_shift(x: Any, y: Any) -> Any:
    """The same as `bitwise_right_shift`.

    Args:
        x: Tensor of integers or bool, of any shape.
        y: The same, in a shape that broadcasts with that of `x`.

    Returns:
        The broadcast shape, in the dtype that both promote to; bool becomes int32.

    Raises:
        TypeError: for floats.

    Example:

    >>> from kerascnn import ops
    >>> ops.right_shift([8, -8], 1).numpy().tolist()
    [4, -4]
    """
    return bitwise_right_shift(x, y)

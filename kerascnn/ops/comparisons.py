"""Questions to elements, and choices that depend on the answers."""

from __future__ import annotations

from typing import Any

from kerascnn import dtypes
from kerascnn.ops import dispatch
from kerascnn.symbolic.operation import op

__all__ = [
    "equal",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "select",
    "where",
]


def _binary(name: str, x1: Any, x2: Any, result: Any = dtypes.result_type) -> Any:
    return dispatch.apply_one(name, dispatch.operands(x1, x2, result=result))


def _ordered(name: str, x1: Any, x2: Any) -> Any:
    """Defines comparisons by size, where False is less than True."""
    operands = dispatch.operands(x1, x2)
    if operands[0].dtype == "bool":
        operands = [dispatch.convert(x, "uint8") for x in operands]
    return dispatch.apply_one(name, operands)


@op
def equal(x1: Any, x2: Any) -> Any:
    """x1 == x2, element by element; NaN equals nothing.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A bool tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.equal([1, 2, 3], [1, 0, 3]).numpy().tolist()
    [True, False, True]
    """
    return _binary("equal", x1, x2)


@op
def not_equal(x1: Any, x2: Any) -> Any:
    """x1 != x2, element by element; NaN differs even from itself.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A bool tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.not_equal([1, 2, 3], [1, 0, 3]).numpy().tolist()
    [False, True, False]
    """
    return _binary("not_equal", x1, x2)


@op
def less(x1: Any, x2: Any) -> Any:
    """x1 < x2, element by element; False with NaN on either side.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A bool tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.less([1, 2, 3], 2).numpy().tolist()
    [True, False, False]
    """
    return _ordered("less", x1, x2)


@op
def less_equal(x1: Any, x2: Any) -> Any:
    """x1 <= x2, element by element; False with NaN on either side.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A bool tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.less_equal([1, 2, 3], 2).numpy().tolist()
    [True, True, False]
    """
    return _ordered("less_equal", x1, x2)


@op
def greater(x1: Any, x2: Any) -> Any:
    """x1 > x2, element by element; False with NaN on either side.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A bool tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.greater([1, 2, 3], 2).numpy().tolist()
    [False, False, True]
    """
    return _ordered("greater", x1, x2)


@op
def greater_equal(x1: Any, x2: Any) -> Any:
    """x1 >= x2, element by element; False with NaN on either side.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A bool tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.greater_equal([1, 2, 3], 2).numpy().tolist()
    [False, True, True]
    """
    return _ordered("greater_equal", x1, x2)


@op
def isfinite(x: Any) -> Any:
    """True where x is neither infinite nor NaN; integers always are.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        A bool tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.isfinite([1.0, float("inf"), float("nan")]).numpy().tolist()
    [True, False, False]
    """
    x = dispatch.convert_floating(x)
    return dispatch.apply_one("isfinite", [x])


@op
def isnan(x: Any) -> Any:
    """True where x is not a number; integers always are numbers.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        A bool tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.isnan([1.0, float("inf"), float("nan")]).numpy().tolist()
    [False, False, True]
    """
    x = dispatch.convert(x)
    return _binary("not_equal", x, x)


@op
def isinf(x: Any) -> Any:
    """True where x is infinite, with either sign; integers never are.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        A bool tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.isinf([1.0, float("-inf"), float("nan")]).numpy().tolist()
    [False, True, False]
    """
    x = dispatch.convert(x)
    return logical_and(logical_not(isfinite(x)), _binary("equal", x, x))


@op
def isposinf(x: Any) -> Any:
    """True where x is infinite and positive.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        A bool tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.isposinf([1.0, float("inf"), float("-inf")]).numpy().tolist()
    [False, True, False]
    """
    x = dispatch.convert(x)
    return logical_and(isinf(x), greater(x, 0))


@op
def isneginf(x: Any) -> Any:
    """True where x is infinite and negative.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        A bool tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.isneginf([1.0, float("inf"), float("-inf")]).numpy().tolist()
    [False, False, True]
    """
    x = dispatch.convert(x)
    return logical_and(isinf(x), less(x, 0))


@op
def logical_and(x1: Any, x2: Any) -> Any:
    """True where both x1 and x2 are True; numbers count as True unless they are 0.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A bool tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.logical_and([True, True, False], [1, 0, 1]).numpy().tolist()
    [True, False, False]
    """
    return _binary("logical_and", x1, x2, "bool")


@op
def logical_or(x1: Any, x2: Any) -> Any:
    """True where x1, x2 or both are True; numbers count as True unless they are 0.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A bool tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.logical_or([True, False, False], [1, 0, 1]).numpy().tolist()
    [True, False, True]
    """
    return _binary("logical_or", x1, x2, "bool")


@op
def logical_not(x: Any) -> Any:
    """True where x is False (or 0).

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        A bool tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.logical_not([True, False]).numpy().tolist()
    [False, True]
    """
    return dispatch.apply_one("logical_not", [dispatch.convert(x, "bool")])


@op
def logical_xor(x1: Any, x2: Any) -> Any:
    """True where one of x1 and x2 is True and the other is not.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A bool tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.logical_xor([True, False, True], [True, True, False]).numpy().tolist()
    [False, True, True]
    """
    x1, x2 = dispatch.convert(x1, "bool"), dispatch.convert(x2, "bool")
    return logical_and(logical_or(x1, x2), logical_not(logical_and(x1, x2)))


@op
def where(condition: Any, x1: Any = None, x2: Any = None) -> Any:
    """x1 where the condition is True, else x2; without both, the same as `nonzero`.

    Args:
        condition: Bool tensor; numbers count as True unless they are 0.
        x1: Tensor of any dtype whose shape broadcasts with that of `condition`.
        x2: The same.

    Returns:
        The shape that all three broadcast to, in the dtype that `x1` and `x2` promote to.
        Without `x1` and `x2`: for each axis, the indices where the condition is True, as int32.

    Raises:
        ValueError: for one of x1 and x2 without the other, and for neither in a compiled step.

    Example:

    >>> from kerascnn import ops
    >>> ops.where([True, False], 1.0, 0.0).numpy().tolist()
    [1.0, 0.0]
    """
    if x1 is None and x2 is None:
        from kerascnn.ops import host

        return host.nonzero(condition)
    if x1 is None or x2 is None:
        raise ValueError("where needs both x1 and x2, or neither of them.")
    x1, x2 = dispatch.operands(x1, x2)
    condition = dispatch.convert(condition, "bool", like=dispatch.first_tensor(x1))
    return dispatch.apply_one("where", [condition, x1, x2])


@op
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """The elements of the first choice whose condition is True, else the default.

    Args:
        condlist: Bool tensors, all of which broadcast with each other and the choices.
        choicelist: As many tensors of any dtype.
        default: The result where no condition is True, a number or a tensor.

    Returns:
        The shape that all of them broadcast to, in the dtype that the choices and the default
        promote to.

    Raises:
        ValueError: for lists of different lengths, or empty ones.

    Example:

    >>> from kerascnn import ops
    >>> x = ops.arange(4)
    >>> ops.select([x < 1, x > 2], [x - 10, x + 10], 0).numpy().tolist()
    [-10, 0, 0, 13]
    """
    if not len(condlist) or len(condlist) != len(choicelist):
        raise ValueError(
            "select: condlist and choicelist must be of one length, which is not 0. Received: "
            f"len(condlist)={len(condlist)}, len(choicelist)={len(choicelist)}"
        )
    *choices, result = dispatch.operands(*choicelist, default)
    for condition, choice in reversed(list(zip(condlist, choices, strict=True))):
        result = where(condition, choice, result)
    return result

"""Functions of single elements, with broadcasting where there are several operands."""

from __future__ import annotations

import builtins
from typing import Any

from kerascnn import dtypes
from kerascnn.ops import dispatch
from kerascnn.symbolic.operation import op

__all__ = [
    "abs",
    "absolute",
    "add",
    "ceil",
    "clip",
    "divide",
    "equal",
    "exp",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "logical_and",
    "logical_not",
    "logical_or",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "not_equal",
    "power",
    "reciprocal",
    "round",
    "rsqrt",
    "sign",
    "sqrt",
    "square",
    "subtract",
    "tanh",
    "true_divide",
    "where",
]


def _binary(name: str, x1: Any, x2: Any, result: Any = dtypes.result_type) -> Any:
    return dispatch.apply_one(name, dispatch.operands(x1, x2, result=result))


def _number(name: str, x1: Any, x2: Any) -> Any:
    """Defines arithmetic. bool has none: True counts as 1, and results other than 0 are True."""
    x1, x2 = dispatch.operands(x1, x2)
    if x1.dtype != "bool":
        return dispatch.apply_one(name, [x1, x2])
    whole = [dispatch.convert(x, "int32") for x in (x1, x2)]
    return dispatch.convert(dispatch.apply_one(name, whole), "bool")


def _ordered(name: str, x1: Any, x2: Any) -> Any:
    """Defines comparisons by size, where False is less than True."""
    operands = dispatch.operands(x1, x2)
    if operands[0].dtype == "bool":
        operands = [dispatch.convert(x, "uint8") for x in operands]
    return dispatch.apply_one(name, operands)


def _unary(name: str, x: Any, attributes: dispatch.Attributes | None = None) -> Any:
    return dispatch.apply_one(name, [dispatch.convert(x)], attributes)


def _floating(name: str, x: Any, attributes: dispatch.Attributes | None = None) -> Any:
    """Defines a function of real numbers: integers become `floatx` first."""
    x = dispatch.convert(x)
    if not dtypes.is_float(x.dtype):
        x = dispatch.convert(x, dtypes.float_result_type(x.dtype))
    return dispatch.apply_one(name, [x], attributes)


@dispatch.at_once("add")
@op
def add(x1: Any, x2: Any) -> Any:
    """x1 + x2; of two bool tensors, True where one of them is.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        The broadcast shape, in the dtype that `x1` and `x2` promote to.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.add([1.0, 2.0], 1).numpy().tolist()
    [2.0, 3.0]
    """
    result = dtypes.result_type(*(dispatch.type_of(x) for x in (x1, x2) if hasattr(x, "dtype")))
    if result == "bool" and hasattr(x1, "dtype") and hasattr(x2, "dtype"):
        return logical_or(x1, x2)
    return _number("add", x1, x2)


@dispatch.at_once("subtract")
@op
def subtract(x1: Any, x2: Any) -> Any:
    """x1 - x2; integers wrap around at the limits of their dtype.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        The broadcast shape, in the dtype that `x1` and `x2` promote to.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.subtract([[5, 6], [7, 8]], [1, 2]).numpy().tolist()
    [[4, 4], [6, 6]]
    """
    return _number("subtract", x1, x2)


@dispatch.at_once("multiply")
@op
def multiply(x1: Any, x2: Any) -> Any:
    """x1 * x2, element by element.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        The broadcast shape, in the dtype that `x1` and `x2` promote to.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.multiply([[1, 2], [3, 4]], [10, 100]).numpy().tolist()
    [[10, 200], [30, 400]]
    """
    return _number("multiply", x1, x2)


@dispatch.at_once("divide")
@op
def divide(x1: Any, x2: Any) -> Any:
    """x1 / x2; what is divided by 0 becomes infinite, and 0 / 0 NaN.

    Args:
        x1: Tensor of any shape. Integers and bool are computed as `floatx`.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A floating tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.divide([1, 2], 2).numpy().tolist()
    [0.5, 1.0]
    """
    return _binary("divide", x1, x2, dtypes.float_result_type)


def true_divide(x1: Any, x2: Any) -> Any:
    """The same as `divide`.

    Args:
        x1: Tensor of any shape. Integers and bool are computed as `floatx`.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A floating tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.true_divide([1, 2], 2).numpy().tolist()
    [0.5, 1.0]
    """
    return divide(x1, x2)


@op
def floor_divide(x1: Any, x2: Any) -> Any:
    """The largest whole number not above x1 / x2; 0 for integers where x2 is 0.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        The broadcast shape, in the dtype that `x1` and `x2` promote to.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.floor_divide([7, -7], 2).numpy().tolist()
    [3, -4]
    """
    return _number("floor_divide", x1, x2)


@op
def mod(x1: Any, x2: Any) -> Any:
    """What `floor_divide` leaves over; it has the sign of x2.

    Where x2 is 0, integers give 0 and floats NaN.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        The broadcast shape, in the dtype that `x1` and `x2` promote to; bool becomes int32.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.mod([7, -7], 3).numpy().tolist()
    [1, 2]
    """
    x1, x2 = dispatch.operands(x1, x2)
    if x1.dtype == "bool":
        x1, x2 = dispatch.convert(x1, "int32"), dispatch.convert(x2, "int32")
    return dispatch.apply_one("mod", [x1, x2])


@op
def power(x1: Any, x2: Any) -> Any:
    """x1 to the power of x2.

    Whole exponents up to 3 are products, which are faster and exact. Integers to a negative power
    are 0 unless x1 is 1 or -1; a negative float to a power that is not whole is NaN.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        The broadcast shape, in the dtype that `x1` and `x2` promote to.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.power([1.0, 4.0, 9.0], 0.5).numpy().round(3))
    [1. 2. 3.]
    >>> ops.power([1, 2, 3], 2).numpy().tolist()
    [1, 4, 9]
    """
    if isinstance(x2, (int, float)) and not isinstance(x2, bool) and x2 in (1, 2, 3):
        base = dispatch.operands(x1, x2)[0]
        if x2 == 1:
            return base
        squared = dispatch.apply_one("square", [base])
        return squared if x2 == 2 else multiply(squared, base)
    return _number("power", x1, x2)


def _extreme(name: str, x1: Any, x2: Any) -> Any:
    x1, x2 = dispatch.operands(x1, x2)
    if x1.dtype == "bool":
        return logical_or(x1, x2) if name == "maximum" else logical_and(x1, x2)
    return dispatch.apply_one(name, [x1, x2])


@dispatch.at_once("maximum")
@op
def maximum(x1: Any, x2: Any) -> Any:
    """The larger of each pair; NaN where one of them is NaN.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        The broadcast shape, in the dtype that `x1` and `x2` promote to.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.maximum([1, 5], [3, 2]).numpy().tolist()
    [3, 5]
    """
    return _extreme("maximum", x1, x2)


@dispatch.at_once("minimum")
@op
def minimum(x1: Any, x2: Any) -> Any:
    """The smaller of each pair; NaN where one of them is NaN.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        The broadcast shape, in the dtype that `x1` and `x2` promote to.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.minimum([1, 5], [3, 2]).numpy().tolist()
    [1, 2]
    """
    return _extreme("minimum", x1, x2)


@dispatch.at_once("negative")
@op
def negative(x: Any) -> Any:
    """-x; uint8 wraps around.

    Args:
        x: Tensor of any shape and of any dtype but bool.

    Returns:
        The shape and dtype of `x`.

    Raises:
        TypeError: for bool, which has no negative numbers.

    Example:

    >>> from kerascnn import ops
    >>> ops.negative([1.0, -2.0]).numpy().tolist()
    [-1.0, 2.0]
    """
    return _unary("negative", x)


@dispatch.at_once("absolute")
@op
def absolute(x: Any) -> Any:
    """The value without its sign.

    The lowest number of an integer dtype has no opposite there and stays as it is.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        The shape and dtype of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.absolute([-1.5, 2.0]).numpy().tolist()
    [1.5, 2.0]
    """
    x = dispatch.convert(x)
    return x if x.dtype == "bool" else _unary("absolute", x)


def abs(x: Any) -> Any:
    """The same as `absolute`.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        The shape and dtype of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.abs([-1.5, 2.0]).numpy().tolist()
    [1.5, 2.0]
    """
    return absolute(x)


@op
def sign(x: Any) -> Any:
    """-1, 0 or 1; NaN stays NaN.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        The shape and dtype of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.sign([-2.5, 0.0, 3.0]).numpy().tolist()
    [-1.0, 0.0, 1.0]
    """
    x = dispatch.convert(x)
    return x if x.dtype == "bool" else _unary("sign", x)


@op
def reciprocal(x: Any) -> Any:
    """1 / x; infinite where x is 0.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.reciprocal([2, 4]).numpy().tolist()
    [0.5, 0.25]
    """
    return _floating("reciprocal", x)


@dispatch.at_once("square")
@op
def square(x: Any) -> Any:
    """x * x; integers wrap around at the limits of their dtype.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        The shape and dtype of `x`; bool becomes int32.

    Example:

    >>> from kerascnn import ops
    >>> ops.square([-3, 2]).numpy().tolist()
    [9, 4]
    """
    x = dispatch.convert(x)
    return _unary("square", dispatch.convert(x, "int32") if x.dtype == "bool" else x)


@dispatch.at_once("sqrt")
@op
def sqrt(x: Any) -> Any:
    """The square root; NaN below 0.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.sqrt([4, 9]).numpy().tolist()
    [2.0, 3.0]
    """
    return _floating("sqrt", x)


@dispatch.at_once("rsqrt")
@op
def rsqrt(x: Any) -> Any:
    """1 / sqrt(x); infinite at 0, NaN below.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.rsqrt([4.0, 16.0]).numpy().tolist()
    [0.5, 0.25]
    """
    return _floating("rsqrt", x)


@dispatch.at_once("exp")
@op
def exp(x: Any) -> Any:
    """e to the power of x.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.exp([0.0, 1.0]).numpy().round(3))
    [1.    2.718]
    """
    return _floating("exp", x)


@dispatch.at_once("log")
@op
def log(x: Any) -> Any:
    """The natural logarithm; -infinity at 0, NaN below.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.log([1.0, 10.0]).numpy().round(3))
    [0.    2.303]
    """
    return _floating("log", x)


@op
def log1p(x: Any) -> Any:
    """log(1 + x), exact for small x; -infinity at -1, NaN below.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> print(f"{float(ops.log1p(1e-9)):.1e}")
    1.0e-09
    """
    return _floating("log1p", x)


@dispatch.at_once("tanh")
@op
def tanh(x: Any) -> Any:
    """The hyperbolic tangent.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/4.28

    Example:

    >>> from kerascnn import ops
    >>> print(ops.tanh([-1.0, 0.0, 1.0]).numpy().round(3))
    [-0.762  0.     0.762]
    """
    return _floating("tanh", x)


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
    return _floating("floor", x)


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
    return _floating("ceil", x)


@op
def clip(x: Any, x_min: Any, x_max: Any) -> Any:
    """x, but not below x_min and not above x_max; NaN stays NaN.

    Args:
        x: Tensor of any shape and dtype.
        x_min: The lowest result: a number, or a tensor whose shape broadcasts with that of `x`.
            It is cast to the dtype of `x`.
        x_max: The highest result, as `x_min`.

    Returns:
        The shape that all three broadcast to, in the dtype of `x`; bool becomes int32.

    Raises:
        ValueError: for numbers of which `x_min` is the larger.

    Example:

    >>> from kerascnn import ops
    >>> ops.clip([-1.0, 0.5, 2.0], 0.0, 1.0).numpy().tolist()
    [0.0, 0.5, 1.0]
    """
    x = dispatch.convert(x)
    if x.dtype == "bool":
        x = dispatch.convert(x, "int32")
    if isinstance(x_min, (int, float)) and isinstance(x_max, (int, float)):
        return _unary("clip", x, {"min": float(x_min), "max": float(x_max)})
    return minimum(maximum(x, dispatch.convert(x_min, x.dtype)), dispatch.convert(x_max, x.dtype))


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
    x = dispatch.convert(x)
    return _floating("isfinite", x)


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


def _floating_input(x: Any) -> Any:
    x = dispatch.convert(x)
    return x if dtypes.is_float(x.dtype) else dispatch.convert(x, dtypes.float_result_type(x.dtype))


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
        return multiply(_unary("round", divide(x, scale)), scale)
    return divide(_unary("round", multiply(x, scale)), scale)

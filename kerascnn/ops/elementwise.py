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
    """x1 + x2.

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
    """x1 - x2."""
    return _number("subtract", x1, x2)


@dispatch.at_once("multiply")
@op
def multiply(x1: Any, x2: Any) -> Any:
    """x1 * x2, element by element."""
    return _number("multiply", x1, x2)


@dispatch.at_once("divide")
@op
def divide(x1: Any, x2: Any) -> Any:
    """x1 / x2; integers are divided as `floatx`.

    Example:

    >>> from kerascnn import ops
    >>> ops.divide([1, 2], 2).numpy().tolist()
    [0.5, 1.0]
    """
    return _binary("divide", x1, x2, dtypes.float_result_type)


def true_divide(x1: Any, x2: Any) -> Any:
    """The same as `divide`."""
    return divide(x1, x2)


@op
def floor_divide(x1: Any, x2: Any) -> Any:
    """The largest whole number not above x1 / x2; 0 for integers where x2 is 0."""
    return _number("floor_divide", x1, x2)


@op
def mod(x1: Any, x2: Any) -> Any:
    """What `floor_divide` leaves over; it has the sign of x2."""
    x1, x2 = dispatch.operands(x1, x2)
    if x1.dtype == "bool":
        x1, x2 = dispatch.convert(x1, "int32"), dispatch.convert(x2, "int32")
    return dispatch.apply_one("mod", [x1, x2])


@op
def power(x1: Any, x2: Any) -> Any:
    """x1 to the power of x2.

    Whole exponents up to 3 are products, which are faster and exact.
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
    """The larger of each pair."""
    return _extreme("maximum", x1, x2)


@dispatch.at_once("minimum")
@op
def minimum(x1: Any, x2: Any) -> Any:
    """The smaller of each pair."""
    return _extreme("minimum", x1, x2)


@dispatch.at_once("negative")
@op
def negative(x: Any) -> Any:
    """-x."""
    return _unary("negative", x)


@dispatch.at_once("absolute")
@op
def absolute(x: Any) -> Any:
    """The value without its sign."""
    x = dispatch.convert(x)
    return x if x.dtype == "bool" else _unary("absolute", x)


def abs(x: Any) -> Any:
    """The same as `absolute`."""
    return absolute(x)


@op
def sign(x: Any) -> Any:
    """-1, 0 or 1."""
    x = dispatch.convert(x)
    return x if x.dtype == "bool" else _unary("sign", x)


@op
def reciprocal(x: Any) -> Any:
    """1 / x."""
    return _floating("reciprocal", x)


@dispatch.at_once("square")
@op
def square(x: Any) -> Any:
    """x * x."""
    x = dispatch.convert(x)
    return _unary("square", dispatch.convert(x, "int32") if x.dtype == "bool" else x)


@dispatch.at_once("sqrt")
@op
def sqrt(x: Any) -> Any:
    """The square root."""
    return _floating("sqrt", x)


@dispatch.at_once("rsqrt")
@op
def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return _floating("rsqrt", x)


@dispatch.at_once("exp")
@op
def exp(x: Any) -> Any:
    """e to the power of x."""
    return _floating("exp", x)


@dispatch.at_once("log")
@op
def log(x: Any) -> Any:
    """The natural logarithm."""
    return _floating("log", x)


@op
def log1p(x: Any) -> Any:
    """log(1 + x), exact for small x."""
    return _floating("log1p", x)


@dispatch.at_once("tanh")
@op
def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return _floating("tanh", x)


@op
def floor(x: Any) -> Any:
    """The largest whole number not above x."""
    return _floating("floor", x)


@op
def ceil(x: Any) -> Any:
    """The smallest whole number not below x."""
    return _floating("ceil", x)


@op
def clip(x: Any, x_min: Any, x_max: Any) -> Any:
    """x, but not below x_min and not above x_max.

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
    """True where x is neither infinite nor NaN."""
    x = dispatch.convert(x)
    return _floating("isfinite", x)


@op
def isnan(x: Any) -> Any:
    """True where x is not a number."""
    x = dispatch.convert(x)
    return _binary("not_equal", x, x)


@op
def isinf(x: Any) -> Any:
    """True where x is infinite."""
    x = dispatch.convert(x)
    return logical_and(logical_not(isfinite(x)), _binary("equal", x, x))


@op
def equal(x1: Any, x2: Any) -> Any:
    """x1 == x2, element by element."""
    return _binary("equal", x1, x2)


@op
def not_equal(x1: Any, x2: Any) -> Any:
    """x1 != x2, element by element."""
    return _binary("not_equal", x1, x2)


@op
def less(x1: Any, x2: Any) -> Any:
    """x1 < x2, element by element."""
    return _ordered("less", x1, x2)


@op
def less_equal(x1: Any, x2: Any) -> Any:
    """x1 <= x2, element by element."""
    return _ordered("less_equal", x1, x2)


@op
def greater(x1: Any, x2: Any) -> Any:
    """x1 > x2, element by element."""
    return _ordered("greater", x1, x2)


@op
def greater_equal(x1: Any, x2: Any) -> Any:
    """x1 >= x2, element by element."""
    return _ordered("greater_equal", x1, x2)


@op
def logical_and(x1: Any, x2: Any) -> Any:
    """True where both x1 and x2 are True; numbers count as True unless they are 0."""
    return _binary("logical_and", x1, x2, "bool")


@op
def logical_or(x1: Any, x2: Any) -> Any:
    """True where x1, x2 or both are True; numbers count as True unless they are 0."""
    return _binary("logical_or", x1, x2, "bool")


@op
def logical_not(x: Any) -> Any:
    """True where x is False (or 0)."""
    return dispatch.apply_one("logical_not", [dispatch.convert(x, "bool")])


@op
def where(condition: Any, x1: Any = None, x2: Any = None) -> Any:
    """x1 where the condition is True, else x2; without both, the same as `nonzero`.

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
    """The nearest number with so many decimals, halves going to the even neighbour."""
    return _round(x, decimals)


@op
def _round(x: Any, decimals: int) -> Any:
    x = dispatch.convert(x)
    if not dtypes.is_float(x.dtype):
        return x
    if decimals == 0:
        return _unary("round", x)
    scale = 10.0 ** builtins.abs(decimals)
    if decimals < 0:
        return multiply(_unary("round", divide(x, scale)), scale)
    return divide(_unary("round", multiply(x, scale)), scale)

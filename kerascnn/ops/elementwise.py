"""Functions of single elements, with broadcasting where there are several operands."""

from __future__ import annotations

from typing import Any

from kerascnn import dtypes
from kerascnn.ops import dispatch

# Comparisons are functions of single elements too: other modules use them from here.
from kerascnn.ops.comparisons import _binary
from kerascnn.ops.comparisons import equal as equal
from kerascnn.ops.comparisons import greater as greater
from kerascnn.ops.comparisons import greater_equal as greater_equal
from kerascnn.ops.comparisons import isfinite as isfinite
from kerascnn.ops.comparisons import isinf as isinf
from kerascnn.ops.comparisons import isnan as isnan
from kerascnn.ops.comparisons import less as less
from kerascnn.ops.comparisons import less_equal as less_equal
from kerascnn.ops.comparisons import logical_and as logical_and
from kerascnn.ops.comparisons import logical_not as logical_not
from kerascnn.ops.comparisons import logical_or as logical_or
from kerascnn.ops.comparisons import not_equal as not_equal
from kerascnn.ops.comparisons import where as where
from kerascnn.symbolic.operation import op

__all__ = [
    "abs",
    "absolute",
    "add",
    "clip",
    "divide",
    "exp",
    "floor_divide",
    "log",
    "log1p",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "power",
    "reciprocal",
    "rsqrt",
    "sign",
    "sqrt",
    "square",
    "subtract",
    "tanh",
    "true_divide",
]


def _number(name: str, x1: Any, x2: Any) -> Any:
    """Defines arithmetic. bool has none: True counts as 1, and results other than 0 are True."""
    x1, x2 = dispatch.operands(x1, x2)
    if x1.dtype != "bool":
        return dispatch.apply_one(name, [x1, x2])
    whole = [dispatch.convert(x, "int32") for x in (x1, x2)]
    return dispatch.convert(dispatch.apply_one(name, whole), "bool")


def _unary(name: str, x: Any, attributes: dispatch.Attributes | None = None) -> Any:
    return dispatch.apply_one(name, [dispatch.convert(x)], attributes)


def _apply_floating(name: str, x: Any, attributes: dispatch.Attributes | None = None) -> Any:
    """Applies an op of real numbers: integers become `floatx` first."""
    return dispatch.apply_one(name, [dispatch.convert_floating(x)], attributes)


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
    return _apply_floating("reciprocal", x)


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
    return _apply_floating("sqrt", x)


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
    return _apply_floating("rsqrt", x)


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
    return _apply_floating("exp", x)


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
    return _apply_floating("log", x)


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
    return _apply_floating("log1p", x)


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
    return _apply_floating("tanh", x)


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

"""More functions of single elements: trigonometry, error functions, bits, and what builds on them.

All but the few that say so are one core op, which joins its neighbours in a compiled step.
"""

from __future__ import annotations

import math
from typing import Any

from kerascnn import dtypes
from kerascnn.ops import creation, dispatch, elementwise
from kerascnn.ops.elementwise import _binary, _floating, _floating_input
from kerascnn.symbolic.operation import op

__all__ = [
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "cbrt",
    "cos",
    "cosh",
    "deg2rad",
    "divide_no_nan",
    "erf",
    "erfc",
    "erfinv",
    "exp2",
    "expm1",
    "fabs",
    "fmax",
    "fmin",
    "fmod",
    "heaviside",
    "hypot",
    "isclose",
    "isneginf",
    "isposinf",
    "ldexp",
    "left_shift",
    "log2",
    "log10",
    "logaddexp",
    "logaddexp2",
    "logical_xor",
    "nan_to_num",
    "rad2deg",
    "right_shift",
    "select",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "tan",
    "trunc",
]


@op
def sin(x: Any) -> Any:
    """The sine of angles in radians.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/4.14

    Example:

    >>> from kerascnn import ops
    >>> print(ops.sin([0.0, 0.5, 1.0]).numpy().round(3))
    [0.    0.479 0.841]
    """
    return _floating("sin", x)


@op
def cos(x: Any) -> Any:
    """The cosine of angles in radians.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/4.14

    Example:

    >>> from kerascnn import ops
    >>> print(ops.cos([0.0, 0.5, 1.0]).numpy().round(3))
    [1.    0.878 0.54 ]
    """
    return _floating("cos", x)


@op
def tan(x: Any) -> Any:
    """The tangent of angles in radians.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/4.14

    Example:

    >>> from kerascnn import ops
    >>> print(ops.tan([0.0, 0.5, 1.0]).numpy().round(3))
    [0.    0.546 1.557]
    """
    return _floating("tan", x)


@op
def arcsin(x: Any) -> Any:
    """The inverse of the sine, from -pi/2 to pi/2; NaN outside [-1, 1].

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/4.23

    Example:

    >>> from kerascnn import ops
    >>> print(ops.arcsin([-1.0, 0.0, 0.5]).numpy().round(3))
    [-1.571  0.     0.524]
    """
    return _floating("arcsin", x)


@op
def arccos(x: Any) -> Any:
    """The inverse of the cosine, from 0 to pi; NaN outside [-1, 1].

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/4.23

    Example:

    >>> from kerascnn import ops
    >>> print(ops.arccos([-1.0, 0.0, 0.5]).numpy().round(3))
    [3.142 1.571 1.047]
    """
    return _floating("arccos", x)


@op
def arctan(x: Any) -> Any:
    """The inverse of the tangent, from -pi/2 to pi/2.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/4.23

    Example:

    >>> from kerascnn import ops
    >>> print(ops.arctan([-1.0, 0.0, 2.0]).numpy().round(3))
    [-0.785  0.     1.107]
    """
    return _floating("arctan", x)


@op
def arctan2(x1: Any, x2: Any) -> Any:
    """The angle of the point (x2, x1), from -pi to pi.

    Args:
        x1: Tensor of any shape. Integers and bool are computed as `floatx`.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A floating tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Source: https://dlmf.nist.gov/4.23

    Example:

    >>> from kerascnn import ops
    >>> print(ops.arctan2([1.0, -1.0], [0.0, -1.0]).numpy().round(3))
    [ 1.571 -2.356]
    """
    return _binary("arctan2", x1, x2, dtypes.float_result_type)


@op
def sinh(x: Any) -> Any:
    """The hyperbolic sine.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/4.28

    Example:

    >>> from kerascnn import ops
    >>> print(ops.sinh([-1.0, 0.0, 1.0]).numpy().round(3))
    [-1.175  0.     1.175]
    """
    return _floating("sinh", x)


@op
def cosh(x: Any) -> Any:
    """The hyperbolic cosine.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/4.28

    Example:

    >>> from kerascnn import ops
    >>> print(ops.cosh([-1.0, 0.0, 1.0]).numpy().round(3))
    [1.543 1.    1.543]
    """
    return _floating("cosh", x)


@op
def arcsinh(x: Any) -> Any:
    """The inverse of the hyperbolic sine.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/4.37

    Example:

    >>> from kerascnn import ops
    >>> print(ops.arcsinh([-1.0, 0.0, 1.0]).numpy().round(3))
    [-0.881  0.     0.881]
    """
    return _floating("arcsinh", x)


@op
def arccosh(x: Any) -> Any:
    """The inverse of the hyperbolic cosine, from 0 on; NaN below 1.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/4.37

    Example:

    >>> from kerascnn import ops
    >>> print(ops.arccosh([1.0, 2.0]).numpy().round(3))
    [0.    1.317]
    """
    return _floating("arccosh", x)


@op
def arctanh(x: Any) -> Any:
    """The inverse of the hyperbolic tangent; infinite at -1 and 1, NaN beyond.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/4.37

    Example:

    >>> from kerascnn import ops
    >>> print(ops.arctanh([0.0, 0.5]).numpy().round(3))
    [0.    0.549]
    """
    return _floating("arctanh", x)


@op
def expm1(x: Any) -> Any:
    """exp(x) - 1, exact for small x.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> print(f"{float(ops.expm1(1e-9)):.1e}")
    1.0e-09
    """
    return _floating("expm1", x)


@op
def erf(x: Any) -> Any:
    """The error function.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/7.2

    Example:

    >>> from kerascnn import ops
    >>> print(ops.erf([-1.0, 0.0, 1.0]).numpy().round(3))
    [-0.843  0.     0.843]
    """
    return _floating("erf", x)


@op
def erfc(x: Any) -> Any:
    """1 - erf(x), exact where that is small.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/7.2

    Example:

    >>> from kerascnn import ops
    >>> print(ops.erfc([-1.0, 0.0, 1.0]).numpy().round(3))
    [1.843 1.    0.157]
    """
    return _floating("erfc", x)


@op
def erfinv(x: Any) -> Any:
    """The inverse of the error function; infinite at -1 and 1, NaN beyond.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/7.17

    Example:

    >>> from kerascnn import ops
    >>> print(ops.erfinv([-0.5, 0.0, 0.5]).numpy().round(3))
    [-0.477  0.     0.477]
    """
    return _floating("erfinv", x)


@op
def exp2(x: Any) -> Any:
    """2 to the power of x.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.exp2([3, -1]).numpy().round(3))
    [8.  0.5]
    """
    x = _floating_input(x)
    return elementwise.power(creation.full_like(x, 2), x)


@op
def log2(x: Any) -> Any:
    """The logarithm to base 2; -infinity at 0, NaN below.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.log2([1.0, 8.0]).numpy().round(3))
    [0. 3.]
    """
    return elementwise.multiply(elementwise.log(x), 1 / math.log(2))


@op
def log10(x: Any) -> Any:
    """The logarithm to base 10; -infinity at 0, NaN below.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.log10([1.0, 1000.0]).numpy().round(3))
    [0. 3.]
    """
    return elementwise.multiply(elementwise.log(x), 1 / math.log(10))


@op
def cbrt(x: Any) -> Any:
    """The cube root, also of negative numbers.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.cbrt([27.0, -8.0]).numpy().round(3))
    [ 3. -2.]
    """
    x = _floating_input(x)
    return elementwise.multiply(
        elementwise.sign(x), elementwise.power(elementwise.absolute(x), 1 / 3)
    )


@op
def deg2rad(x: Any) -> Any:
    """Degrees as radians.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.deg2rad([90.0, 180.0]).numpy().round(3))
    [1.571 3.142]
    """
    return elementwise.multiply(_floating_input(x), math.pi / 180)


@op
def rad2deg(x: Any) -> Any:
    """Radians as degrees.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.rad2deg([0.0, 1.0]).numpy().round(3))
    [ 0.    57.296]
    """
    return elementwise.multiply(_floating_input(x), 180 / math.pi)


@op
def sinc(x: Any) -> Any:
    """sin(pi x) / (pi x), and 1 at 0.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.sinc([0.0, 0.5, 1.5]).numpy().round(3))
    [ 1.     0.637 -0.212]
    """
    x = _floating_input(x)
    is_zero = elementwise.equal(x, 0)
    angle = elementwise.multiply(elementwise.where(is_zero, creation.ones_like(x), x), math.pi)
    return elementwise.where(is_zero, creation.ones_like(x), elementwise.divide(sin(angle), angle))


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
    return elementwise.where(elementwise.less(x, 0), elementwise.ceil(x), elementwise.floor(x))


@op
def fabs(x: Any) -> Any:
    """The absolute value, as a floating number.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.fabs([-2, 3]).numpy().tolist()
    [2.0, 3.0]
    """
    return elementwise.absolute(_floating_input(x))


@op
def signbit(x: Any) -> Any:
    """True where the sign is negative, also for -0.0.

    Args:
        x: Tensor of any shape and dtype. The sign of NaN is not looked at: the result is False.

    Returns:
        A bool tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.signbit([-0.0, 0.0, -1.5]).numpy().tolist()
    [True, False, True]
    """
    x = dispatch.convert(x)
    if x.dtype in ("bool", "uint8"):
        return creation.zeros_like(x, "bool")
    if not dtypes.is_float(x.dtype):
        return elementwise.less(x, 0)
    # 1 / x distinguishes -0.0 from 0.0.
    is_negative_zero = elementwise.less(elementwise.reciprocal(x), 0)
    return elementwise.where(elementwise.equal(x, 0), is_negative_zero, elementwise.less(x, 0))


@op
def heaviside(x1: Any, x2: Any) -> Any:
    """0 below 0, x2 at 0, 1 above; NaN stays NaN.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        The broadcast shape, in the dtype that `x1` and `x2` promote to; int64 becomes float64,
        and shorter integers become `floatx`.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.heaviside([-1.0, 0.0, 2.0], 0.5).numpy().tolist()
    [0.0, 0.5, 1.0]
    """
    x1, x2 = dispatch.operands(x1, x2)
    if dtypes.is_integer(x1.dtype):
        name = "float64" if x1.dtype == "int64" else dtypes.float_result_type(x1.dtype)
        x1, x2 = dispatch.convert(x1, name), dispatch.convert(x2, name)
    step = dispatch.convert(elementwise.greater(x1, 0), x1.dtype)
    step = elementwise.where(elementwise.equal(x1, 0), x2, step)
    return elementwise.where(elementwise.isnan(x1), x1, step)


@op
def hypot(x1: Any, x2: Any) -> Any:
    """sqrt(x1^2 + x2^2), without overflow on the way; NaN where one of them is NaN.

    Args:
        x1: Tensor of any shape. Integers and bool are computed as `floatx`.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A floating tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.hypot([3.0, 5.0], [4.0, 12.0]).numpy().round(3))
    [ 5. 13.]
    """
    x1, x2 = dispatch.operands(x1, x2, result=dtypes.float_result_type)
    a, b = elementwise.absolute(x1), elementwise.absolute(x2)
    large, small = elementwise.maximum(a, b), elementwise.minimum(a, b)
    is_plain = elementwise.logical_and(elementwise.greater(large, 0), elementwise.isfinite(large))
    ratio = elementwise.divide(small, elementwise.where(is_plain, large, 1.0))
    root = elementwise.sqrt(elementwise.add(elementwise.square(ratio), 1))
    return elementwise.where(is_plain, elementwise.multiply(large, root), large)


@op
def logaddexp(x1: Any, x2: Any) -> Any:
    """log(exp(x1) + exp(x2)), without overflow.

    Args:
        x1: Tensor of any shape. Integers and bool are computed as `floatx`.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A floating tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.logaddexp([0.0, 100.0], [0.0, 100.0]).numpy().round(3))
    [  0.693 100.693]
    """
    x1, x2 = dispatch.operands(x1, x2, result=dtypes.float_result_type)
    largest = elementwise.maximum(x1, x2)
    apart = elementwise.absolute(elementwise.subtract(x1, x2))
    # The distance between equal infinities is 0.
    apart = elementwise.where(elementwise.equal(x1, x2), creation.zeros_like(apart), apart)
    return elementwise.add(largest, elementwise.log1p(elementwise.exp(elementwise.negative(apart))))


@op
def logaddexp2(x1: Any, x2: Any) -> Any:
    """log2(2^x1 + 2^x2), without overflow.

    Args:
        x1: Tensor of any shape. Integers and bool are computed as `floatx`.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A floating tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.logaddexp2([0.0, 500.0], [0.0, 500.0]).numpy().round(3))
    [  1. 501.]
    """
    scale = math.log(2)
    x1, x2 = dispatch.operands(x1, x2, result=dtypes.float_result_type)
    dtype = x1.dtype
    if dtype in ("float16", "bfloat16"):  # these types would round a product visibly
        x1, x2 = dispatch.convert(x1, "float32"), dispatch.convert(x2, "float32")
    summed = logaddexp(elementwise.multiply(x1, scale), elementwise.multiply(x2, scale))
    return creation.cast(elementwise.divide(summed, scale), dtype)


@op
def ldexp(x1: Any, x2: Any) -> Any:
    """x1 * 2^x2.

    Args:
        x1: Tensor of any shape. Integers and bool are computed as `floatx`.
        x2: Integers, in a shape that broadcasts with that of `x1`. The power itself must be in
            range.

    Returns:
        A floating tensor of the broadcast shape, in the dtype of `x1`.

    Raises:
        TypeError: for exponents that are floats.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.ldexp([1.0, 3.0], [2, -1]).numpy().round(3))
    [4.  1.5]
    """
    x2 = dispatch.convert(x2)
    if dtypes.is_float(x2.dtype):
        raise TypeError(f"ldexp: exponents are integers. Received: x2.dtype={x2.dtype}")
    x1 = _floating_input(x1)
    return elementwise.multiply(x1, exp2(dispatch.convert(x2, x1.dtype)))


@op
def fmod(x1: Any, x2: Any) -> Any:
    """What a division rounded towards 0 leaves over; it has the sign of x1.

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
    >>> ops.fmod([-5, 5], [3, -3]).numpy().tolist()
    [-2, 2]
    """
    x1, x2 = dispatch.operands(x1, x2)
    if x1.dtype in ("bool", "uint8"):
        return elementwise.mod(x1, x2)
    rest = elementwise.mod(elementwise.absolute(x1), elementwise.absolute(x2))
    return elementwise.where(elementwise.less(x1, 0), elementwise.negative(rest), rest)


@op
def fmax(x1: Any, x2: Any) -> Any:
    """The larger of each pair; where one is NaN, the other.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        The broadcast shape, in the dtype that `x1` and `x2` promote to.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.fmax([1.0, float("nan")], [0.0, 2.0]).numpy().tolist()
    [1.0, 2.0]
    """
    x1, x2 = dispatch.operands(x1, x2)
    if not dtypes.is_float(x1.dtype):
        return elementwise.maximum(x1, x2)
    first = elementwise.where(elementwise.isnan(x1), x2, x1)
    return elementwise.maximum(first, elementwise.where(elementwise.isnan(x2), first, x2))


@op
def fmin(x1: Any, x2: Any) -> Any:
    """The smaller of each pair; where one is NaN, the other.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        The broadcast shape, in the dtype that `x1` and `x2` promote to.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.fmin([1.0, float("nan")], [0.0, 2.0]).numpy().tolist()
    [0.0, 2.0]
    """
    x1, x2 = dispatch.operands(x1, x2)
    if not dtypes.is_float(x1.dtype):
        return elementwise.minimum(x1, x2)
    first = elementwise.where(elementwise.isnan(x1), x2, x1)
    return elementwise.minimum(first, elementwise.where(elementwise.isnan(x2), first, x2))


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
    return elementwise.logical_and(elementwise.isinf(x), elementwise.greater(x, 0))


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
    return elementwise.logical_and(elementwise.isinf(x), elementwise.less(x, 0))


@op
def nan_to_num(
    x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """Numbers in the place of NaN and infinities.

    Args:
        x: Tensor of any shape and dtype; integers and bool stay as they are.
        nan: In the place of NaN.
        posinf: In the place of infinity, by default the largest number of the dtype.
        neginf: In the place of -infinity, by default the lowest number of the dtype.

    Returns:
        The shape and dtype of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.nan_to_num([1.0, float("nan")]).numpy().tolist()
    [1.0, 0.0]
    """
    x = dispatch.convert(x)
    if not dtypes.is_float(x.dtype):
        return x
    most = dtypes.limits(x.dtype)[1]
    x = elementwise.where(elementwise.isnan(x), dispatch.convert(nan, x.dtype), x)
    high = dispatch.convert(most if posinf is None else posinf, x.dtype)
    low = dispatch.convert(-most if neginf is None else neginf, x.dtype)
    return elementwise.where(isposinf(x), high, elementwise.where(isneginf(x), low, x))


@op
def divide_no_nan(x1: Any, x2: Any) -> Any:
    """x1 / x2, and 0 where x2 is 0.

    Args:
        x1: Tensor of any shape. Integers and bool are computed as `floatx`.
        x2: Tensor whose shape broadcasts with that of `x1`.

    Returns:
        A floating tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> ops.divide_no_nan([1, 2], [0, 4]).numpy().tolist()
    [0.0, 0.5]
    """
    x1, x2 = dispatch.operands(x1, x2, result=dtypes.float_result_type)
    is_zero = elementwise.equal(x2, 0)
    quotient = elementwise.divide(x1, elementwise.where(is_zero, creation.ones_like(x2), x2))
    return elementwise.where(is_zero, creation.zeros_like(quotient), quotient)


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
    return elementwise.logical_and(
        elementwise.logical_or(x1, x2), elementwise.logical_not(elementwise.logical_and(x1, x2))
    )


@op
def isclose(
    x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """True where |x1 - x2| <= atol + rtol * |x2|, or both are the same infinity.

    Args:
        x1: Tensor of any shape and dtype.
        x2: What it is compared with, in a shape that broadcasts with that of `x1`.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        equal_nan: Whether two NaN are close.

    Returns:
        A bool tensor of the broadcast shape.

    Raises:
        ValueError: where the shapes don't broadcast.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.isclose.html

    Example:

    >>> from kerascnn import ops
    >>> ops.isclose([1.0, 2.0], [1.000001, 2.1]).numpy().tolist()
    [True, False]
    """
    x1, x2 = dispatch.operands(x1, x2, result=dtypes.float_result_type)
    apart = elementwise.absolute(elementwise.subtract(x1, x2))
    allowed = elementwise.add(elementwise.multiply(elementwise.absolute(x2), rtol), atol)
    near = elementwise.logical_and(elementwise.less_equal(apart, allowed), elementwise.isfinite(x2))
    near = elementwise.logical_or(near, elementwise.equal(x1, x2))
    if not equal_nan:
        return near
    both = elementwise.logical_and(elementwise.isnan(x1), elementwise.isnan(x2))
    return elementwise.logical_or(near, both)


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
        result = elementwise.where(condition, choice, result)
    return result


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
    return _bits("bitwise_and", elementwise.logical_and, x, y)


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
    return _bits("bitwise_or", elementwise.logical_or, x, y)


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
    return _bits("bitwise_xor", logical_xor, x, y)


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
        return elementwise.logical_not(x)
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

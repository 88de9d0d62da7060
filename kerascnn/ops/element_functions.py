"""More functions of single elements: error functions, exponents, and what builds on them.

Some are one core op, which joins its neighbours in a compiled step; the others are several.
"""

from __future__ import annotations

import math
from typing import Any

from kerascnn import dtypes
from kerascnn.ops import comparisons, creation, dispatch, elementwise
from kerascnn.ops.elementwise import _apply_floating
from kerascnn.symbolic.operation import op

__all__ = [
    "cbrt",
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
    "isclose",
    "ldexp",
    "log2",
    "log10",
    "logaddexp",
    "logaddexp2",
    "nan_to_num",
    "signbit",
]


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
    return _apply_floating("expm1", x)


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
    return _apply_floating("erf", x)


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
    return _apply_floating("erfc", x)


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
    return _apply_floating("erfinv", x)


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
    x = dispatch.convert_floating(x)
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
    x = dispatch.convert_floating(x)
    return elementwise.multiply(
        elementwise.sign(x), elementwise.power(elementwise.absolute(x), 1 / 3)
    )


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
    return elementwise.absolute(dispatch.convert_floating(x))


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
    x1 = dispatch.convert_floating(x1)
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
    return elementwise.where(
        comparisons.isposinf(x), high, elementwise.where(comparisons.isneginf(x), low, x)
    )


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

"""Angles, triangles and hyperbolic functions, element by element."""

from __future__ import annotations

import math
from typing import Any

from kerascnn import dtypes
from kerascnn.ops import creation, dispatch, elementwise
from kerascnn.ops.comparisons import _binary
from kerascnn.ops.elementwise import _apply_floating
from kerascnn.symbolic.operation import op

__all__ = [
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "cos",
    "cosh",
    "deg2rad",
    "hypot",
    "rad2deg",
    "sin",
    "sinc",
    "sinh",
    "tan",
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
    return _apply_floating("sin", x)


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
    return _apply_floating("cos", x)


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
    return _apply_floating("tan", x)


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
    return _apply_floating("arcsin", x)


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
    return _apply_floating("arccos", x)


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
    return _apply_floating("arctan", x)


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
    return _apply_floating("sinh", x)


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
    return _apply_floating("cosh", x)


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
    return _apply_floating("arcsinh", x)


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
    return _apply_floating("arccosh", x)


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
    return _apply_floating("arctanh", x)


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
    return elementwise.multiply(dispatch.convert_floating(x), math.pi / 180)


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
    return elementwise.multiply(dispatch.convert_floating(x), 180 / math.pi)


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
    x = dispatch.convert_floating(x)
    is_zero = elementwise.equal(x, 0)
    angle = elementwise.multiply(elementwise.where(is_zero, creation.ones_like(x), x), math.pi)
    return elementwise.where(is_zero, creation.ones_like(x), elementwise.divide(sin(angle), angle))


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
    length = elementwise.where(is_plain, elementwise.multiply(large, root), large)
    # Beside an infinity NaN does not count, as in C.
    is_infinite = elementwise.logical_or(elementwise.isinf(a), elementwise.isinf(b))
    return elementwise.where(is_infinite, float("inf"), length)

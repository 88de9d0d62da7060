"""NumPy's functions of complex numbers, for the real numbers that tensors hold."""

from __future__ import annotations

import math
from typing import Any

from kerascnn.ops import creation, dispatch, elementwise
from kerascnn.symbolic.operation import op

__all__ = ["angle", "conj", "conjugate", "imag", "isreal", "real"]


@op
def real(x: Any) -> Any:
    """The real part: x itself.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        The shape and dtype of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.real([1.0, -2.0]).numpy().tolist()
    [1.0, -2.0]
    """
    return dispatch.convert(x)


@op
def imag(x: Any) -> Any:
    """The imaginary part, which is 0.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        Zeros in the shape and dtype of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.imag([1.0, -2.0]).numpy().tolist()
    [0.0, 0.0]
    """
    return creation.zeros_like(x)


@op
def conjugate(x: Any) -> Any:
    """The complex conjugate: x itself.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        The shape and dtype of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.conjugate([1.0, -2.0]).numpy().tolist()
    [1.0, -2.0]
    """
    return dispatch.convert(x)


@op
def conj(x: Any) -> Any:
    """The same as `conjugate`.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        The shape and dtype of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.conj([1.0, -2.0]).numpy().tolist()
    [1.0, -2.0]
    """
    return dispatch.convert(x)


@op
def isreal(x: Any) -> Any:
    """True everywhere, since the imaginary part is 0.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        A bool tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.isreal([1.0, float("nan")]).numpy().tolist()
    [True, True]
    """
    return creation.ones_like(x, "bool")


@op
def angle(x: Any) -> Any:
    """The angle in the complex plane: pi for negative numbers, else 0; NaN for NaN.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.

    Returns:
        A floating tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.angle([2.0, -1.0]).numpy().round(3))
    [0.    3.142]
    """
    x = dispatch.convert_floating(x)
    result = elementwise.where(elementwise.less(x, 0), math.pi, 0.0)
    return elementwise.where(elementwise.isnan(x), x, creation.cast(result, x.dtype))

"""Divisors and multiples of integers, and a Bessel function."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from kerascnn import config, dtypes
from kerascnn.ops import dispatch, elementwise
from kerascnn.symbolic.operation import op

__all__ = ["gcd", "i0", "lcm"]

# Euclid's algorithm takes at most this many steps for integers of so many bits. Neighbouring
# Fibonacci numbers take longest, and at most 1.4405 n + 1 of them have n bits.
_STEPS = {bits: math.ceil(1.4405 * bits) + 1 for bits in (8, 16, 32, 64)}


def _integers(name: str, x1: Any, x2: Any) -> list[Any]:
    operands = dispatch.operands(x1, x2)
    if not dtypes.is_integer(operands[0].dtype):
        raise TypeError(f"{name}: divisors are those of integers. Received: {operands[0].dtype}")
    return operands


@op
def gcd(x1: Any, x2: Any) -> Any:
    """The greatest common divisor of each pair of integers; 0 for two zeros.

    Args:
        x1: Integers of any shape and dtype.
        x2: Integers in a shape that broadcasts with that of `x1`.

    Returns:
        The broadcast shape, in the dtype that both promote to; nothing is negative.

    Raises:
        TypeError: for others than integers.

    Source: Euclid's algorithm, as many steps as integers of the dtype can take.

    Example:

    >>> from kerascnn import ops
    >>> ops.gcd([12, 7, 0], [18, 5, -4]).numpy().tolist()
    [6, 1, 4]
    """
    a, b = _integers("gcd", x1, x2)
    for _ in range(_STEPS[np.iinfo(a.dtype).bits]):
        # A division by 0 has no remainder here.
        a, b = elementwise.where(elementwise.equal(b, 0), a, b), elementwise.mod(a, b)
    return a if a.dtype == "uint8" else elementwise.absolute(a)


@op
def lcm(x1: Any, x2: Any) -> Any:
    """The least common multiple of each pair of integers; 0 where one is 0.

    Args:
        x1: Integers of any shape and dtype.
        x2: Integers in a shape that broadcasts with that of `x1`.

    Returns:
        The broadcast shape, in the dtype that both promote to, where multiples can wrap around.

    Raises:
        TypeError: for others than integers.

    Example:

    >>> from kerascnn import ops
    >>> ops.lcm([4, 7, 0], [6, 5, 3]).numpy().tolist()
    [12, 35, 0]
    """
    a, b = _integers("lcm", x1, x2)
    product = elementwise.multiply(elementwise.floor_divide(a, gcd(a, b)), b)
    return product if a.dtype == "uint8" else elementwise.absolute(product)


@op
def i0(x: Any) -> Any:
    """The modified Bessel function of the first kind, of order 0.

    Two Chebyshev series: of exp(-x) i0(x) up to 8, of exp(-x) sqrt(x) i0(x) in 1 / x from there on.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`, int64 as float64.

    Returns:
        A floating tensor in the shape of `x`.

    Source: https://dlmf.nist.gov/10.25

    Example:

    >>> from kerascnn import ops
    >>> print(ops.i0([0.0, 1.0]).numpy().round(3))
    [1.    1.266]
    """
    x = dispatch.convert(x)
    dtype = "float64" if x.dtype == "int64" else x.dtype
    dtype = dtype if dtypes.is_float(dtype) else config.floatx()
    wide = "float64" if dtype == "float64" else "float32"
    size = elementwise.absolute(dispatch.convert(x, wide))
    near, far = _bessel_series(wide)
    is_near = elementwise.less_equal(size, 8.0)
    small, large = elementwise.where(is_near, size, 8.0), elementwise.where(is_near, 8.0, size)
    below = _chebyshev(elementwise.subtract(elementwise.multiply(small, 0.25), 1.0), near)
    above = _chebyshev(elementwise.subtract(elementwise.divide(16.0, large), 1.0), far)
    above = elementwise.divide(above, elementwise.sqrt(large))
    scaled = elementwise.where(is_near, below, above)
    return dispatch.convert(elementwise.multiply(elementwise.exp(size), scaled), dtype)


def _chebyshev(x: Any, coefficients: tuple[float, ...]) -> Any:
    """Computes the sum of c[k] T_k(x) by Clenshaw's recurrence."""
    twice = elementwise.multiply(x, 2.0)
    after: Any = None
    last: Any = elementwise.multiply(x, 0.0)
    for c in reversed(coefficients[1:]):
        new = elementwise.add(elementwise.multiply(twice, last), c)
        after, last = last, new if after is None else elementwise.subtract(new, after)
    rest = elementwise.multiply(x, last)
    rest = rest if after is None else elementwise.subtract(rest, after)
    return elementwise.add(rest, coefficients[0])


@functools.cache
def _bessel_series(dtype: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Finds the coefficients of the two series of `i0` by interpolation at Chebyshev's points."""

    def scaled(x: Any) -> Any:
        # From 50 on the asymptotic series is exact in float64. exp(x) would soon be too large.
        ratios = [(2 * k - 1) ** 2 / (8 * k * np.maximum(x, 50.0)) for k in range(1, 16)]
        terms = np.cumprod([np.ones_like(x), *ratios], 0)
        far = terms.sum(0) / np.sqrt(2 * np.pi * np.maximum(x, 50.0))
        small = np.minimum(x, 50.0)
        return np.where(x > 50.0, far, np.exp(-small) * np.i0(small))

    def series(function: Any, degree: int) -> tuple[float, ...]:
        found = np.polynomial.chebyshev.chebinterpolate(function, degree)
        needed = np.abs(found) > np.finfo(dtype).eps / 8 * np.abs(found).max()
        return tuple(float(c) for c in found[: int(needed.nonzero()[0].max()) + 1])

    def of_inverse(t: Any) -> Any:
        x = 16.0 / (t + 1.0)
        return np.sqrt(x) * scaled(x)

    return series(lambda t: scaled(4.0 * (t + 1.0)), 40), series(of_inverse, 40)

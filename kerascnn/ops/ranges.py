"""Evenly spaced numbers, powers, and the points of grids."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from kerascnn import dtypes, file_budget
from kerascnn.ops import creation, dispatch, elementwise, joining, rounding, shaping
from kerascnn.symbolic.operation import op

__all__ = [
    "geomspace",
    "linspace",
    "logspace",
    "meshgrid",
    "vander",
]


@op
def meshgrid(*x: Any, indexing: str = "xy") -> Any:
    """Coordinates of all points of a grid, one tensor for each of the vectors given.

    Args:
        x: Vectors of any dtype; tensors of other shapes are flattened.
        indexing: "ij" for axes in the order of the vectors, "xy" for the first two swapped.

    Returns:
        A list of as many tensors as there are vectors, each as long along an axis as the vector
        of it.

    Raises:
        ValueError: for another indexing.

    Example:

    >>> from kerascnn import ops
    >>> x, y = ops.meshgrid([1, 2, 3], [4, 5])
    >>> x.numpy().tolist(), y.numpy().tolist()
    ([[1, 2, 3], [1, 2, 3]], [[4, 4, 4], [5, 5, 5]])
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"`indexing` must be 'xy' or 'ij'. Received: indexing={indexing!r}")
    parts = [shaping.ravel(part) for part in x]
    order = list(range(len(parts)))
    if indexing == "xy" and len(parts) > 1:
        order[:2] = [1, 0]
    shape = [parts[i].shape[0] for i in order]
    grids = []
    for i, part in enumerate(parts):
        place = order.index(i)
        view = [part.shape[0] if a == place else 1 for a in range(len(parts))]
        grids.append(shaping.broadcast_to(shaping.reshape(part, view), shape))
    return grids


def _steps(num: int, endpoint: bool) -> np.ndarray[Any, Any]:
    if num < 0:
        raise ValueError(f"`num` must not be negative. Received: num={num}")
    return np.arange(num) / builtins.max(num - 1 if endpoint else num, 1)


@op
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """`num` evenly spaced numbers from start to stop.

    Args:
        start: First number, or a tensor of them.
        stop: Last number, or a tensor whose shape broadcasts with that of `start`.
        num: How many.
        endpoint: Whether `stop` is the last of them; otherwise they end one step before it.
        retstep: Whether the step between them is returned too.
        dtype: By default the floating dtype that start and stop promote to. For integers the
            numbers are rounded down.
        axis: Where the new axis goes.

    Returns:
        A tensor of the broadcast shape with an axis of `num` more; (numbers, step) with
        `retstep`.

    Raises:
        ValueError: for a negative `num`.

    Example:

    >>> from kerascnn import ops
    >>> ops.linspace(0, 1, 3).numpy().tolist()
    [0.0, 0.5, 1.0]
    >>> ops.linspace([0, 10], [1, 20], 3, axis=1).numpy().tolist()
    [[0.0, 0.5, 1.0], [10.0, 15.0, 20.0]]
    """
    if dtype is None:
        name = dtypes.float_result_type(
            dispatch.type_of(_limit(start)), dispatch.type_of(_limit(stop))
        )
    else:
        name = dtypes.standardize_dtype(dtype)
    work = name if dtypes.is_float(name) else "float64"
    first, last = dispatch.operands(_limit(start), _limit(stop), result=work)
    share = _steps(num, endpoint).reshape(
        (-1,) + (1,) * builtins.max(len(first.shape), len(last.shape))
    )
    share = dispatch.convert(share, work)
    apart = elementwise.subtract(last, first)
    result = elementwise.add(elementwise.multiply(share, apart), first)
    if endpoint and num > 1:  # sets the end exactly, without rounding
        is_last = (np.arange(num) == num - 1).reshape(share.shape)
        result = elementwise.where(is_last, last, result)
    if not dtypes.is_float(name):
        result = rounding.floor(result)
    result = creation.cast(shaping.moveaxis(result, 0, axis), name)
    if not retstep:
        return result
    return result, elementwise.divide(apart, builtins.max(num - 1 if endpoint else num, 1))


def _limit(x: Any) -> Any:
    """Converts a limit to what promotion accepts: lists become tensors."""
    return dispatch.convert(x) if isinstance(x, (list, tuple)) else x


@op
def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """`num` numbers from base^start to base^stop, each the same factor larger.

    Args:
        start: First exponent, or a tensor of them.
        stop: Last exponent, or a tensor whose shape broadcasts with that of `start`.
        num: How many.
        endpoint: Whether base^stop is the last of them; otherwise they end one factor before
            it.
        base: What is raised to the exponents, a number.
        dtype: By default the floating dtype that start and stop promote to.
        axis: Where the new axis goes.

    Returns:
        A tensor of the broadcast shape with an axis of `num` more.

    Raises:
        ValueError: for a negative `num`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.logspace(0, 2, 3).numpy().round(3))
    [  1.  10. 100.]
    """
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    result = elementwise.power(dispatch.convert(base, exponents.dtype), exponents)
    return result if dtype is None else creation.cast(result, dtype)


@op
def geomspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """`num` numbers from start to stop, each the same factor larger.

    Args:
        start: First number, or a tensor of them.
        stop: Last number, or a tensor whose shape broadcasts with that of `start`. Start and
            stop have one sign and are not 0, else the numbers are NaN.
        num: How many.
        endpoint: Whether `stop` is the last of them; otherwise they end one factor before it.
        dtype: By default the floating dtype that start and stop promote to.
        axis: Where the new axis goes.

    Returns:
        A tensor of the broadcast shape with an axis of `num` more.

    Raises:
        ValueError: for a negative `num`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.geomspace(1, 8, 4).numpy().round(3))
    [1. 2. 4. 8.]
    """
    first, last = dispatch.operands(_limit(start), _limit(stop), result=dtypes.float_result_type)
    sign = elementwise.sign(first)
    logs = linspace(
        elementwise.log(elementwise.multiply(first, sign)),
        elementwise.log(elementwise.multiply(last, sign)),  # NaN where it has another sign
        num,
        endpoint,
        axis=axis,
    )
    result = elementwise.multiply(elementwise.exp(logs), sign)
    return result if dtype is None else creation.cast(result, dtype)


@op
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The powers of a vector's elements as columns, by default from the highest to 1.

    Args:
        x: (n,), of any dtype.
        N: Number of columns, by default n.
        increasing: Whether the powers go from 1 to the highest.

    Returns:
        (n, N), in the dtype of `x`; bool becomes int32.

    Raises:
        ValueError: for tensors that are no vectors.

    Example:

    >>> from kerascnn import ops
    >>> ops.vander([1, 2, 3]).numpy().tolist()
    [[1, 1, 1], [4, 2, 1], [9, 3, 1]]
    """
    x = dispatch.convert(x)
    if len(x.shape) != 1:
        raise ValueError(f"vander: x must have 1 axis. Received: shape={tuple(x.shape)}")
    file_budget.check_positions(1024 * (x.shape[0] if N is None else N), "vander")  # each is an op
    powers = np.arange(x.shape[0] if N is None else N)
    if not len(powers):
        return creation.zeros((x.shape[0], 0), x.dtype)
    columns = [elementwise.power(x, int(n)) if n else creation.ones_like(x) for n in powers]
    return joining.stack(columns if increasing else columns[::-1], 1)

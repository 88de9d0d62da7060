"""Products, running sums, means with weights, counts, and comparisons of whole tensors."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import dtypes, file_budget
from kerascnn.ops import (
    creation,
    diagonals,
    dispatch,
    elementwise,
    joining,
    matrix_products,
    ranges,
    reduction,
    shaping,
    sorting,
)
from kerascnn.ops.reduction import _axes
from kerascnn.ops.shaping import _axis
from kerascnn.symbolic.operation import op

__all__ = [
    "allclose",
    "amax",
    "amin",
    "average",
    "bincount",
    "corrcoef",
    "correlate",
    "cumprod",
    "cumsum",
    "diff",
    "histogram",
    "isin",
    "prod",
    "ptp",
    "trapezoid",
]

Axis = int | Sequence[int] | None


@op
def amax(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The same as `max`.

    Args:
        x: Tensor of any shape and dtype.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.

    Returns:
        The shape of `x` without the axes, in its dtype.

    Raises:
        ValueError: where `x` has no such axis, or no element along it.

    Example:

    >>> from kerascnn import ops
    >>> ops.amax([[1, 5], [7, 3]], axis=0).numpy().tolist()
    [7, 5]
    """
    return reduction.max(x, axis, keepdims)


@op
def amin(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The same as `min`.

    Args:
        x: Tensor of any shape and dtype.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.

    Returns:
        The shape of `x` without the axes, in its dtype.

    Raises:
        ValueError: where `x` has no such axis, or no element along it.

    Example:

    >>> from kerascnn import ops
    >>> ops.amin([[1, 5], [7, 3]], axis=0).numpy().tolist()
    [1, 3]
    """
    return reduction.min(x, axis, keepdims)


@op
def ptp(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest element minus the smallest along axes; NaN where one of them is NaN.

    Args:
        x: Tensor of any shape and dtype; integers can wrap around in the subtraction.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.

    Returns:
        The shape of `x` without the axes, in its dtype.

    Raises:
        ValueError: where `x` has no such axis, or no element along it.

    Example:

    >>> from kerascnn import ops
    >>> ops.ptp([[1, 5], [7, 3]], axis=0).numpy().tolist()
    [6, 2]
    """
    return elementwise.subtract(reduction.max(x, axis, keepdims), reduction.min(x, axis, keepdims))


def _summable(x: Any, dtype: Any) -> Any:
    """Converts to the requested dtype, or small integers to int32."""
    x = dispatch.convert(x)
    if dtype is not None:
        return dispatch.convert(x, dtypes.standardize_dtype(dtype))
    if x.dtype in ("bool", "uint8", "int8", "int16"):
        return dispatch.convert(x, "int32")
    return x


@op
def prod(x: Any, axis: Axis = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """The product along axes; 1 for no elements.

    Halves of the axis are multiplied by each other again and again, which takes as many steps as
    its length has bits, and whose gradient does not divide (elements may be 0).

    Args:
        x: Tensor of any shape and dtype.
        axis: One or several axes, by default all.
        keepdims: Whether these axes stay, with size 1.
        dtype: What `x` is cast to first. By default bool and integers shorter than int32 become
            int32, and all else stays.

    Returns:
        The shape of `x` without the axes.

    Raises:
        ValueError: where `x` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.prod([[1, 2], [3, 4]], axis=1).numpy().tolist()
    [2, 12]
    """
    x = _summable(x, dtype)
    axes = _axes(axis, x)
    kept = [a for a in range(len(x.shape)) if a not in axes]
    length = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    y = shaping.reshape(shaping.transpose(x, [*kept, *axes]), [*(x.shape[a] for a in kept), length])
    if length == 0:
        y = creation.ones([*y.shape[:-1], 1], y.dtype)
    while y.shape[-1] > 1:
        half = y.shape[-1] // 2
        product = elementwise.multiply(y[..., :half], y[..., half : 2 * half])
        rest = [y[..., 2 * half :]] if y.shape[-1] % 2 else []
        y = joining.concatenate([product, *rest], -1)
    sizes = [1 if a in axes else x.shape[a] for a in range(len(x.shape))]
    return shaping.reshape(y, sizes if keepdims else [x.shape[a] for a in kept])


def _running(name: str, combine: Any, neutral: int, x: Any, axis: int | None) -> Any:
    """Combines runs of 1, 2, 4, ... elements, in as many steps as the length has bits."""
    if axis is None:
        x, axis = shaping.ravel(x), 0
    axis = _axis(axis, len(x.shape), name)
    reach = 1
    while reach < x.shape[axis]:
        widths = [(reach, 0) if a == axis else (0, 0) for a in range(len(x.shape))]
        key = (slice(None),) * axis + (slice(0, x.shape[axis] - reach),)
        x = combine(x, shaping.pad(x[key], widths, constant_values=neutral))
        reach *= 2
    return x


@op
def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """The running sums along an axis, by default of the flattened tensor.

    Args:
        x: Tensor of any shape and dtype.
        axis: One axis, or None to flatten `x`.
        dtype: What `x` is cast to first, by default int32 for bool and else nothing.

    Returns:
        The shape of `x`, or one axis of all its elements where `axis` is None.

    Raises:
        ValueError: where `x` has no such axis.

    Source: Hillis and Steele, "Data Parallel Algorithms", 1986.

    Example:

    >>> from kerascnn import ops
    >>> ops.cumsum([1.0, 2.0, 3.0]).numpy().tolist()
    [1.0, 3.0, 6.0]
    """
    return _running("cumsum", elementwise.add, 0, _countable(x, dtype), axis)


@op
def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """The running products along an axis, by default of the flattened tensor.

    Args:
        x: Tensor of any shape and dtype.
        axis: One axis, or None to flatten `x`.
        dtype: What `x` is cast to first, by default int32 for bool and else nothing.

    Returns:
        The shape of `x`, or one axis of all its elements where `axis` is None.

    Raises:
        ValueError: where `x` has no such axis.

    Source: Hillis and Steele, "Data Parallel Algorithms", 1986.

    Example:

    >>> from kerascnn import ops
    >>> ops.cumprod([[1, 2, 3], [4, 5, 6]], axis=1).numpy().tolist()
    [[1, 2, 6], [4, 20, 120]]
    """
    return _running("cumprod", elementwise.multiply, 1, _countable(x, dtype), axis)


def _countable(x: Any, dtype: Any) -> Any:
    x = dispatch.convert(x)
    name = x.dtype if dtype is None else dtypes.standardize_dtype(dtype)
    return dispatch.convert(x, "int32" if name == "bool" else name)


@op
def diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    """Differences of neighbours along an axis, taken n times.

    Args:
        a: Tensor with at least one axis, of any dtype.
        n: How often differences are taken; 0 returns `a`.
        axis: The axis of the neighbours.

    Returns:
        The dtype and shape of `a`, but n elements shorter along the axis (down to none).
        Differences of bool are True where neighbours differ.

    Raises:
        ValueError: for a negative n, or where `a` has no such axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.diff([1, 4, 9, 16]).numpy().tolist()
    [3, 5, 7]
    >>> ops.diff([1, 4, 9, 16], n=2).numpy().tolist()
    [2, 2]
    """
    a = dispatch.convert(a)
    axis = _axis(axis, len(a.shape), "diff")
    if n < 0:
        raise ValueError(f"diff: n must not be negative. Received: n={n}")
    before = (slice(None),) * axis
    # Each time one element goes; when none is left, nothing changes any more.
    for _ in range(builtins.min(operator.index(n), a.shape[axis])):
        later, earlier = a[(*before, slice(1, None))], a[(*before, slice(None, -1))]
        if a.dtype == "bool":
            a = elementwise.not_equal(later, earlier)
        else:
            a = elementwise.subtract(later, earlier)
    return a


@op
def average(x: Any, axis: int | None = None, weights: Any = None) -> Any:
    """The mean along an axis, by default of all elements, with weights.

    Args:
        x: Tensor of any shape. Integers and bool are computed as `floatx`.
        axis: One axis, or None for all.
        weights: In the shape of `x`, or a vector as long as the axis; by default all count the
            same.

    Returns:
        A floating tensor in the shape of `x` without the axis; infinite or NaN where the
        weights sum to 0.

    Raises:
        ValueError: where `x` has no such axis, and for weights of another shape.

    Example:

    >>> from kerascnn import ops
    >>> ops.average([[1.0, 2.0], [3.0, 4.0]], axis=0, weights=[1, 3]).numpy().tolist()
    [2.5, 3.5]
    """
    if weights is None:
        return reduction.mean(x, axis)
    x, weights = dispatch.operands(x, weights, result=dtypes.float_result_type)
    if tuple(weights.shape) != tuple(x.shape):
        place = None if axis is None else _axis(axis, len(x.shape), "average")
        if place is None or tuple(weights.shape) != (x.shape[place],):
            raise ValueError(
                "average: `weights` must have the shape of `x`, or be a vector as long as "
                f"`axis`. Received shapes: x {tuple(x.shape)}, weights {tuple(weights.shape)}, "
                f"axis={axis}"
            )
        weights = shaping.reshape(weights, [-1 if a == place else 1 for a in range(len(x.shape))])
        weights = shaping.broadcast_to(weights, tuple(x.shape))
    total = reduction.sum(elementwise.multiply(x, weights), axis)
    return elementwise.divide(total, reduction.sum(weights, axis))


@op
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The area under a curve by the trapezoidal rule.

    Args:
        y: Heights, in any shape. Integers and bool are computed as `floatx`.
        x: Where they are: a vector as long as the axis, or a tensor in the shape of `y`. By
            default they are `dx` apart.
        dx: Distance of neighbours, used without `x`.
        axis: The axis that the curve runs along.

    Returns:
        A floating tensor in the shape of `y` without the axis; 0 for fewer than two heights.

    Raises:
        ValueError: where `y` has no such axis.

    Source: https://dlmf.nist.gov/3.5

    Example:

    >>> from kerascnn import ops
    >>> ops.trapezoid([1.0, 2.0, 3.0], [0.0, 1.0, 3.0]).numpy().tolist()
    6.5
    """
    y = dispatch.convert_floating(y)
    axis = _axis(axis, len(y.shape), "trapezoid")
    before = (slice(None),) * axis
    mean = elementwise.multiply(
        elementwise.add(y[(*before, slice(1, None))], y[(*before, slice(None, -1))]), 0.5
    )
    if x is None:
        width = dx
    else:
        x = dispatch.convert(x)
        width = diff(x, axis=axis if len(x.shape) > 1 else -1)
        if len(x.shape) == 1:
            width = shaping.reshape(width, [-1 if a == axis else 1 for a in range(len(y.shape))])
    return reduction.sum(elementwise.multiply(mean, width), axis)


@op
def bincount(x: Any, weights: Any = None, minlength: int = 0, sparse: bool = False) -> Any:
    """Returns how often each integer from 0 on occurs in a vector, or in each row of a matrix.

    Args:
        x: Integers or bool, (n,) or (rows, n); negative ones are not counted.
        weights: What each counts, in the shape of `x`; by default 1.
        minlength: At least so many counts. In a traced step there are just so many, since the
            largest integer is not known.
        sparse: Only False: there are no sparse tensors.

    Returns:
        (counts,) or (rows, counts), as int32, or in the dtype that `x` and `weights` promote
        to.

    Raises:
        ValueError: for sparse=True, and for a traced step without `minlength`.
        TypeError: for floats, and for tensors of other than 1 or 2 axes.

    Example:

    >>> from kerascnn import ops
    >>> ops.bincount([0, 2, 2]).numpy().tolist()
    [1, 0, 2]
    >>> ops.bincount([0, 2, 2], weights=[1.0, 0.5, 0.25]).numpy().tolist()
    [1.0, 0.0, 0.75]
    """
    if sparse:
        raise ValueError("bincount: there are no sparse tensors. Received: sparse=True")
    x = dispatch.convert(x)
    if dtypes.is_float(x.dtype) or len(x.shape) not in (1, 2):
        raise TypeError(
            "bincount: x holds integers along 1 or 2 axes. Received: "
            f"{x.dtype} of shape {tuple(x.shape)}"
        )
    length = int(minlength)
    if hasattr(x, "numpy"):
        known = x.numpy()
        length = builtins.max(length, int(known.max()) + 1 if known.size else 0)
    elif length < 1:
        raise ValueError(
            "bincount: in a traced step, minlength must say how many counts there are."
        )
    if weights is None:
        name = "int32"
    else:
        weights = dispatch.convert(weights)
        name = dtypes.result_type(x.dtype, weights.dtype)
    if length == 0:
        return creation.zeros((*x.shape[:-1], 0), name)
    work = name if dtypes.is_float(name) else "float64"  # float64 holds all counts exactly
    hits = shaping.one_hot(x, length, dtype=work)
    if weights is not None:
        hits = elementwise.multiply(hits, shaping.expand_dims(dispatch.convert(weights, work), -1))
    return creation.cast(reduction.sum(hits, -2), name)


@op
def histogram(x: Any, bins: int = 10, range: tuple[float, float] | None = None) -> Any:
    """Returns how many elements lie in each of the bins, and the bins' edges.

    Args:
        x: Tensor of any shape, seen as one vector. Integers and bool are computed as `floatx`.
            There must be no NaN among them where `range` is None.
        bins: Number of bins of one width.
        range: Lower and upper limit, by default the smallest and the largest element, or 0 and
            1 where there is none. Elements outside are not counted.

    Returns:
        (counts (bins,), edges (bins + 1,)), both floating. A bin holds its lower edge; the last
        one holds its upper edge too.

    Raises:
        ValueError: for fewer bins than 1, and for a range that is not (low, high).

    Example:

    >>> from kerascnn import ops
    >>> counts, edges = ops.histogram([1, 2, 2, 4], bins=3)
    >>> counts.numpy().tolist(), edges.numpy().tolist()
    ([1.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0])
    """
    if not isinstance(bins, int) or bins < 1:
        raise ValueError(f"Argument `bins` must be a positive integer. Received: bins={bins}")
    if range is not None and (len(range) != 2 or range[1] < range[0]):
        raise ValueError(f"Argument `range` must be a tuple (low, high). Received: range={range}")
    x = shaping.ravel(dispatch.convert_floating(x))
    if range is None and x.shape[0] > 0:
        low, high = reduction.min(x), reduction.max(x)
    else:
        low, high = (dispatch.convert(float(v), x.dtype) for v in range or (0, 1))
    is_point = elementwise.equal(low, high)
    low = elementwise.where(is_point, elementwise.subtract(low, 0.5), low)
    high = elementwise.where(is_point, elementwise.add(high, 0.5), high)
    edges = ranges.linspace(low, high, bins + 1, dtype=x.dtype)
    place = elementwise.subtract(sorting.searchsorted(edges, x, "right"), 1)
    place = elementwise.where(elementwise.equal(x, high), bins - 1, place)
    counts = reduction.sum(shaping.one_hot(place, bins, dtype="int32"), 0)
    return creation.cast(counts, x.dtype), edges


@op
def corrcoef(x: Any) -> Any:
    """The correlations of the rows of x with each other.

    Args:
        x: (variables, observations), or one variable (observations,). Integers and bool are
            computed as `floatx`, int64 as float64.

    Returns:
        (variables, variables) between -1 and 1, or one number for one variable; NaN for
        variables that do not vary.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.corrcoef([[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]]).numpy().round(3))
    [[ 1. -1.]
     [-1.  1.]]
    """
    x = dispatch.convert(x)
    name = "float64" if x.dtype == "int64" else dtypes.float_result_type(x.dtype)
    x = dispatch.convert(x, name)
    x = elementwise.subtract(x, reduction.mean(x, -1 if len(x.shape) else None, True))
    if len(x.shape) < 2:
        variation = reduction.sum(elementwise.square(x))
        return elementwise.divide(variation, variation)
    products = matrix_products.matmul(x, shaping.swapaxes(x, -1, -2))
    root = elementwise.sqrt(diagonals.diagonal(products))
    result = elementwise.divide(products, shaping.expand_dims(root, -1))
    return elementwise.clip(elementwise.divide(result, shaping.expand_dims(root, 0)), -1.0, 1.0)


@op
def correlate(x1: Any, x2: Any, mode: str = "valid") -> Any:
    """The correlation of two vectors at all shifts.

    Args:
        x1: (n,)
        x2: (m,)
        mode: "full" for n + m - 1 shifts, "valid" for those without borders, "same" for the
            middle max(n, m) ones.

    Returns:
        A floating vector: float64 for int64, float32 for other integers.

    Raises:
        ValueError: for another mode, and for tensors that are no vectors or have no elements.

    Example:

    >>> from kerascnn import ops
    >>> ops.correlate([1.0, 2.0, 3.0], [0.0, 1.0, 0.5]).numpy().tolist()
    [3.5]
    >>> ops.correlate([1.0, 2.0, 3.0], [0.0, 1.0, 0.5], mode="same").numpy().tolist()
    [2.0, 3.5, 3.0]
    """
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"`mode` must be 'full', 'valid' or 'same'. Received: mode={mode!r}")

    def result(*types: Any) -> str:
        name = dtypes.result_type(*types)
        if name == "int64":
            return "float64"
        return name if name in ("bfloat16", "float16", "float64") else "float32"

    x1, x2 = dispatch.operands(x1, x2, result=result)
    if len(x1.shape) != 1 or len(x2.shape) != 1 or 0 in (*x1.shape, *x2.shape):
        raise ValueError(
            "correlate: both are vectors with elements. Received shapes: "
            f"{tuple(x1.shape)}, {tuple(x2.shape)}"
        )
    n, m = x1.shape[0], x2.shape[0]
    file_budget.check_positions((n + m) * m, "correlate")
    padded = shaping.pad(x1, [[m - 1, m - 1]])
    place = np.arange(n + m - 1)[:, None] + np.arange(m)[None, :]
    full = matrix_products.matmul(shaping.take(padded, place.astype("int32"), 0), x2)
    length = {"full": n + m - 1, "same": builtins.max(n, m)}.get(mode, builtins.abs(n - m) + 1)
    first = (n + m - 1 - length) // 2
    return full[first : first + length]


@op
def allclose(
    x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """True where all elements are close; see `isclose`.

    Args:
        x1: Tensor of any shape and dtype.
        x2: What it is compared with, in a shape that broadcasts with that of `x1`.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        equal_nan: Whether two NaN are close.

    Returns:
        One bool.

    Raises:
        ValueError: where the shapes don't broadcast.

    Example:

    >>> from kerascnn import ops
    >>> bool(ops.allclose([1.0, 2.0], [1.000001, 2.0]))
    True
    """
    from kerascnn.ops import element_functions

    return reduction.all(element_functions.isclose(x1, x2, rtol, atol, equal_nan))


@op
def isin(x1: Any, x2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """True where an element of x1 is in x2.

    Each element is compared with each, so the work grows with the product of the sizes.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Elements to look for, in any shape. NaN is never found.
        assume_unique: Nothing depends on it.
        invert: True for elements that are not in x2.

    Returns:
        A bool tensor in the shape of `x1`.

    Example:

    >>> from kerascnn import ops
    >>> ops.isin([[1, 2], [3, 4]], [2, 3, 9]).numpy().tolist()
    [[False, True], [True, False]]
    """
    x1, x2 = dispatch.operands(x1, x2)
    found = reduction.any(elementwise.equal(shaping.expand_dims(x1, -1), shaping.ravel(x2)), -1)
    return elementwise.logical_not(found) if invert else found

"""Products, running sums, means with weights, counts, and reductions that leave NaN out."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.ops import (
    arrays,
    creation,
    dispatch,
    elementwise,
    matrix_products,
    reduction,
    shaping,
    sorting,
)
from kerascnn.ops.reduction import _axes, _floating
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
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
    "prod",
    "ptp",
    "trapezoid",
]

Axis = int | Sequence[int] | None


@op
def amax(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The same as `max`."""
    return reduction.max(x, axis, keepdims)


@op
def amin(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The same as `min`."""
    return reduction.min(x, axis, keepdims)


@op
def ptp(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest element minus the smallest along axes."""
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
    """The product along axes.

    Halves of the axis are multiplied by each other again and again, which takes as many steps as
    its length has bits, and whose gradient does not divide (elements may be 0).
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
        y = shaping.concatenate([product, *rest], -1)
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

    Example:

    >>> from kerascnn import ops
    >>> ops.cumsum([1.0, 2.0, 3.0]).numpy().tolist()
    [1.0, 3.0, 6.0]
    """
    return _running("cumsum", elementwise.add, 0, _countable(x, dtype), axis)


@op
def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """The running products along an axis, by default of the flattened tensor."""
    return _running("cumprod", elementwise.multiply, 1, _countable(x, dtype), axis)


def _countable(x: Any, dtype: Any) -> Any:
    x = dispatch.convert(x)
    name = x.dtype if dtype is None else dtypes.standardize_dtype(dtype)
    return dispatch.convert(x, "int32" if name == "bool" else name)


@op
def diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    """Differences of neighbours along an axis, taken n times."""
    a = dispatch.convert(a)
    axis = _axis(axis, len(a.shape), "diff")
    if n < 0:
        raise ValueError(f"diff: n must not be negative. Received: n={n}")
    before = (slice(None),) * axis
    for _ in range(n):
        later, earlier = a[(*before, slice(1, None))], a[(*before, slice(None, -1))]
        if a.dtype == "bool":
            a = elementwise.not_equal(later, earlier)
        else:
            a = elementwise.subtract(later, earlier)
    return a


@op
def average(x: Any, axis: int | None = None, weights: Any = None) -> Any:
    """The mean along an axis, with weights in the shape of x or of the axis.

    Raises:
        ValueError: for weights of another shape.
    """
    if weights is None:
        return reduction.mean(x, axis)
    x, weights = dispatch.operands(x, weights, result=dtypes.float_result_type)
    if tuple(weights.shape) != tuple(x.shape):
        if axis is None or tuple(weights.shape) != (x.shape[axis],):
            raise ValueError(
                "average: `weights` must have the shape of `x`, or be a vector as long as "
                f"`axis`. Received shapes: x {tuple(x.shape)}, weights {tuple(weights.shape)}, "
                f"axis={axis}"
            )
        place = axis % len(x.shape)
        weights = shaping.reshape(weights, [-1 if a == place else 1 for a in range(len(x.shape))])
        weights = shaping.broadcast_to(weights, tuple(x.shape))
    total = reduction.sum(elementwise.multiply(x, weights), axis)
    return elementwise.divide(total, reduction.sum(weights, axis))


@op
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The area under a curve by the trapezoidal rule.

    Args:
        y: Heights.
        x: Where they are; by default `dx` apart.
        dx: Distance of neighbours.
        axis: Along which the curve runs.
    """
    y = _floating(y)
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
        x: Integers from 0 on, (n,) or (rows, n).
        weights: What each counts, by default 1.
        minlength: At least so many counts. In a traced step there are just so many, since the
            largest integer is not known.
        sparse: Only False: there are no sparse tensors.

    Example:

    >>> from kerascnn import ops
    >>> ops.bincount([0, 2, 2]).numpy().tolist()
    [1, 0, 2]
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
        length = builtins.max(length, int(x.numpy().max(initial=-1)) + 1)
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
        x: Input, seen as one vector.
        bins: Number of bins of one width.
        range: Lower and upper limit, by default the smallest and the largest element, or 0 and 1
            where there is none.

    Returns:
        (counts (bins,), edges (bins + 1,)); the last bin holds its upper edge too.
    """
    if not isinstance(bins, int) or bins < 1:
        raise ValueError(f"Argument `bins` must be a positive integer. Received: bins={bins}")
    if range is not None and (len(range) != 2 or range[1] < range[0]):
        raise ValueError(f"Argument `range` must be a tuple (low, high). Received: range={range}")
    x = shaping.ravel(_floating(x))
    if range is None and x.shape[0] > 0:
        low, high = reduction.min(x), reduction.max(x)
    else:
        low, high = (dispatch.convert(float(v), x.dtype) for v in range or (0, 1))
    is_point = elementwise.equal(low, high)
    low = elementwise.where(is_point, elementwise.subtract(low, 0.5), low)
    high = elementwise.where(is_point, elementwise.add(high, 0.5), high)
    edges = arrays.linspace(low, high, bins + 1, dtype=x.dtype)
    place = elementwise.subtract(sorting.searchsorted(edges, x, "right"), 1)
    place = elementwise.where(elementwise.equal(x, high), bins - 1, place)
    counts = reduction.sum(shaping.one_hot(place, bins, dtype="int32"), 0)
    return creation.cast(counts, x.dtype), edges


@op
def corrcoef(x: Any) -> Any:
    """The correlations of the rows of x (variables, observations) with each other."""
    x = dispatch.convert(x)
    name = "float64" if x.dtype == "int64" else dtypes.float_result_type(x.dtype)
    x = dispatch.convert(x, name)
    if len(x.shape) < 2:
        return elementwise.divide(reduction.sum(x), reduction.sum(x))
    x = elementwise.subtract(x, reduction.mean(x, -1, True))
    products = matrix_products.matmul(x, shaping.swapaxes(x, -1, -2))
    root = elementwise.sqrt(arrays.diagonal(products))
    result = elementwise.divide(products, shaping.expand_dims(root, -1))
    return elementwise.clip(elementwise.divide(result, shaping.expand_dims(root, 0)), -1.0, 1.0)


@op
def correlate(x1: Any, x2: Any, mode: str = "valid") -> Any:
    """The correlation of two vectors at all shifts.

    Args:
        x1: (n,)
        x2: (m,)
        mode: "full" for n + m - 1 shifts, "valid" for those without borders, "same" for the
            middle ones.
    """
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"`mode` must be 'full', 'valid' or 'same'. Received: mode={mode!r}")

    def result(*types: Any) -> str:
        name = dtypes.result_type(*types)
        if name == "int64":
            return "float64"
        return name if name in ("bfloat16", "float16", "float64") else "float32"

    x1, x2 = dispatch.operands(x1, x2, result=result)
    if len(x1.shape) != 1 or len(x2.shape) != 1:
        raise ValueError(
            f"correlate: both are vectors. Received shapes: {tuple(x1.shape)}, {tuple(x2.shape)}"
        )
    n, m = x1.shape[0], x2.shape[0]
    padded = shaping.pad(x1, [[m - 1, m - 1]])
    place = np.arange(n + m - 1)[:, None] + np.arange(m)[None, :]
    full = matrix_products.matmul(shaping.take(padded, place.astype("int32"), 0), x2)
    length = {"full": n + m - 1, "same": builtins.max(n, m)}.get(mode, builtins.abs(n - m) + 1)
    first = (n + m - 1 - length) // 2
    return full[first : first + length]


def _without_nan(x: Any, value: float) -> tuple[Any, Any]:
    """Returns the elements with `value` in place of NaN, and where they are not NaN."""
    x = dispatch.convert(x)
    if not dtypes.is_float(x.dtype):
        return x, creation.ones_like(x, "bool")
    lost = elementwise.isnan(x)
    return (
        elementwise.where(lost, dispatch.convert(value, x.dtype), x),
        elementwise.logical_not(lost),
    )


@op
def nansum(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The sum of the elements that are not NaN."""
    return reduction.sum(_without_nan(x, 0.0)[0], axis, keepdims)


@op
def nanprod(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The product of the elements that are not NaN."""
    return prod(_without_nan(x, 1.0)[0], axis, keepdims)


@op
def nancumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """The running sums, NaN counting as 0."""
    return cumsum(_without_nan(x, 0.0)[0], axis, dtype)


@op
def nancumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """The running products, NaN counting as 1."""
    return cumprod(_without_nan(x, 1.0)[0], axis, dtype)


@op
def nanmean(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The mean of the elements that are not NaN; NaN where there is none."""
    values, known = _without_nan(x, 0.0)
    values = _floating(values)
    count = reduction.sum(creation.cast(known, values.dtype), axis, keepdims)
    return elementwise.divide(reduction.sum(values, axis, keepdims), count)


@op
def nanvar(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The population variance of the elements that are not NaN."""
    values, known = _without_nan(x, 0.0)
    values = _floating(values)
    count = reduction.sum(creation.cast(known, values.dtype), axis, True)
    mean = elementwise.divide(reduction.sum(values, axis, True), count)
    apart = elementwise.where(known, elementwise.subtract(values, mean), 0.0)
    variance = elementwise.divide(reduction.sum(elementwise.square(apart), axis, True), count)
    return variance if keepdims else reduction.sum(variance, axis)


@op
def nanstd(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The population standard deviation of the elements that are not NaN."""
    return elementwise.sqrt(nanvar(x, axis, keepdims))


def _nan_extreme(name: str, x: Any, axis: Axis, keepdims: bool) -> Any:
    sign = -1.0 if name == "max" else 1.0
    values, known = _without_nan(x, sign * float("inf"))
    result = getattr(reduction, name)(values, axis, keepdims)
    if not dtypes.is_float(result.dtype):
        return result
    any_known = reduction.any(known, axis, keepdims)
    return elementwise.where(any_known, result, creation.full_like(result, float("nan")))


@op
def nanmax(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest of the elements that are not NaN; NaN where there is none."""
    return _nan_extreme("max", x, axis, keepdims)


@op
def nanmin(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest of the elements that are not NaN; NaN where there is none."""
    return _nan_extreme("min", x, axis, keepdims)


@op
def nanargmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Returns where the largest of the elements that are not NaN is; -1 where there is none."""
    values, known = _without_nan(x, -float("inf"))
    place = reduction.argmax(values, axis, keepdims)
    return elementwise.where(reduction.any(known, axis, keepdims), place, -1)


@op
def nanargmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Returns where the smallest of the elements that are not NaN is; -1 where there is none."""
    values, known = _without_nan(x, float("inf"))
    place = reduction.argmin(values, axis, keepdims)
    return elementwise.where(reduction.any(known, axis, keepdims), place, -1)


@op
def allclose(
    x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """True where all elements are close; see `isclose`."""
    from kerascnn.ops import functions

    return reduction.all(functions.isclose(x1, x2, rtol, atol, equal_nan))


@op
def isin(x1: Any, x2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """True where an element of x1 is in x2.

    Args:
        x1: Input.
        x2: Elements to look for.
        assume_unique: Nothing depends on it.
        invert: True for elements that are not in x2.
    """
    x1, x2 = dispatch.operands(x1, x2)
    found = reduction.any(elementwise.equal(shaping.expand_dims(x1, -1), shaping.ravel(x2)), -1)
    return elementwise.logical_not(found) if invert else found

"""Triangular and orthogonal decompositions, inverses, determinants, and linear systems.

Values that are known are computed by NumPy, which calls LAPACK, on the host. In a traced step the
loops over the columns are unrolled into ops of the step: on its device, with gradients, and meant
for matrices of up to some dozens of rows. Products there are sums of single products, which no
matrix unit rounds.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from kerascnn import config, dtypes, file_budget
from kerascnn.ops import dispatch, elementwise, joining, reduction, shaping, sorting, statistics
from kerascnn.ops.host import at_once, compute, is_known
from kerascnn.symbolic.operation import op

__all__ = [
    "cholesky",
    "cholesky_inverse",
    "det",
    "inv",
    "logdet",
    "lu_factor",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
]


def matrices(x: Any, square: bool = True) -> Any:
    """Converts matrices to floating numbers of 32 or 64 bits."""
    x = dispatch.convert(x)
    if len(x.shape) < 2:
        raise ValueError(
            f"Expected input to have rank >= 2. Received input with shape {tuple(x.shape)}."
        )
    if not is_known(x):
        file_budget.check_positions(1024 * min(x.shape[-2:]), "a matrix")  # each column is many ops
    if square and x.shape[-1] != x.shape[-2]:
        raise ValueError(
            f"Expected a square matrix. Received non-square input with shape {tuple(x.shape)}"
        )
    return wide(x)


def wide(x: Any) -> Any:
    """Converts numbers to float32 or float64, which LAPACK computes; integers by `floatx`."""
    if x.dtype in ("float32", "float64"):
        return x
    is_wide = not dtypes.is_float(x.dtype) and config.floatx() == "float64"
    return dispatch.convert(x, "float64" if is_wide else "float32")


def _swapped(x: Any) -> Any:
    return shaping.swapaxes(x, -1, -2)


def _times(column: Any, row: Any) -> Any:
    """Returns the outer products of vectors."""
    return elementwise.multiply(shaping.expand_dims(column, -1), shaping.expand_dims(row, -2))


def _identity(n: int, like: Any) -> Any:
    file_budget.charge_weight(n * n * dtypes.ITEMSIZE[like.dtype], "identity", "op")
    return dispatch.convert(np.eye(n, dtype=dtypes.numpy_dtype(like.dtype)), like=like)


@op
@at_once
def cholesky(x: Any, upper: bool = False) -> Any:
    """The triangular matrix L with a positive diagonal for which L L^T is x.

    Args:
        x: Symmetric, positive definite matrices (..., n, n); of others that are not symmetric the
            mean with their transpose is taken.
        upper: Whether L^T is returned.

    Returns:
        (..., n, n), float64 for float64, else float32; integers count as `floatx`.

    Raises:
        ValueError: for matrices that are not square, or known and not positive definite; in a
            compiled step the latter give NaN.

    Source: https://en.wikipedia.org/wiki/Cholesky_decomposition

    Example:

    >>> from kerascnn import ops
    >>> ops.cholesky([[4.0, 2.0], [2.0, 5.0]]).numpy().tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    x = matrices(x)
    x = elementwise.multiply(elementwise.add(x, _swapped(x)), 0.5)
    result = _host_cholesky(x) if is_known(x) else _unrolled_cholesky(x)
    return _swapped(result) if upper else result


def _host_cholesky(x: Any) -> Any:
    try:
        return compute("cholesky", np.linalg.cholesky, x)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"Cholesky decomposition failed: {error}. Add a small multiple of the identity where "
            "rounding made a matrix of variances indefinite."
        ) from None


def _unrolled_cholesky(x: Any) -> Any:
    n = x.shape[-1]
    margins = [(0, 0)] * (len(x.shape) - 2)
    columns = []
    for done in range(n):
        column = elementwise.multiply(x[..., :, 0], elementwise.rsqrt(x[..., 0, 0])[..., None])
        columns.append(shaping.pad(column, [*margins, (done, 0)]))
        rest = column[..., 1:]
        if done + 1 < n:
            x = elementwise.subtract(x[..., 1:, 1:], _times(rest, rest))
    return joining.stack(columns, -1) if columns else x


@op
@at_once
def cholesky_inverse(x: Any, upper: bool = False) -> Any:
    """The inverse of the matrix whose Cholesky factor is x.

    Args:
        x: Lower triangular matrices L (..., n, n), as `cholesky` gives them; the inverse is that
            of L L^T.
        upper: Whether they are upper triangular, for the inverse of L^T L.

    Returns:
        (..., n, n), float64 for float64, else float32; integers count as `floatx`.

    Raises:
        ValueError: for matrices that are not square, or known with a 0 on the diagonal.

    Example:

    >>> from kerascnn import ops
    >>> ops.cholesky_inverse([[2.0, 0.0], [0.0, 4.0]]).numpy().tolist()
    [[0.25, 0.0], [0.0, 0.0625]]
    """
    x = matrices(x)
    lower = _swapped(x) if upper else x
    half = _triangular(lower, _identity(x.shape[-1], x), True)
    return _triangular(_swapped(lower), half, False)


@op
@at_once
def solve_triangular(a: Any, b: Any, lower: bool = False) -> Any:
    """x for which a x = b, of triangular matrices.

    Args:
        a: (..., n, n); what is on the other side of the diagonal counts as 0.
        b: (..., n) or (..., n, k)
        lower: Whether `a` is lower triangular.

    Returns:
        The shape of b (its batch axes and those of a broadcast), float64 if one of them is, else
        float32.

    Raises:
        ValueError: for shapes that don't fit, or known matrices with a 0 on the diagonal; in a
            compiled step the latter give infinities or NaN.

    Example:

    >>> from kerascnn import ops
    >>> ops.solve_triangular([[2.0, 0.0], [1.0, 1.0]], [2.0, 3.0], lower=True).numpy().tolist()
    [1.0, 2.0]
    """
    a, b, is_vector = _system(a, b)
    result = _triangular(a, b, lower)
    return shaping.squeeze(result, -1) if is_vector else result


def _triangular(a: Any, b: Any, lower: bool) -> Any:
    """Solves a x = b for triangular matrices and right sides (..., n, k)."""
    if is_known(a) and is_known(b):
        part = np.tril if lower else np.triu
        return _solved_on_host("solve_triangular", lambda m, y: np.linalg.solve(part(m), y), a, b)
    if lower:
        return _substituted(a, b)
    # Upside down, the matrix is lower triangular.
    return shaping.flip(_substituted(shaping.flip(a, (-2, -1)), shaping.flip(b, -2)), -2)


def _system(a: Any, b: Any) -> tuple[Any, Any, bool]:
    """Returns matrices and right sides (..., n, k) of one dtype, and whether these were vectors."""
    a = matrices(a)
    b = dispatch.convert(b, like=a)
    if not b.shape:
        raise ValueError(f"Expected input to have rank >= 1. Received scalar input {b}.")
    a, b = (wide(x) for x in dispatch.operands(a, b))
    is_vector = len(b.shape) == len(a.shape) - 1
    shape = tuple(b.shape[:-1] if is_vector else b.shape[:-2])
    if b.shape[-1 if is_vector else -2] != a.shape[-1] or not _broadcasts(a.shape[:-2], shape):
        raise ValueError(
            f"Incompatible shapes between `a` {tuple(a.shape)} and `b` {tuple(b.shape)}: b is "
            "(..., n) or (..., n, k) for a of (..., n, n)."
        )
    return a, shaping.expand_dims(b, -1) if is_vector else b, is_vector


def _broadcasts(a: Any, b: Any) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def _solved_on_host(name: str, function: Any, a: Any, b: Any) -> Any:
    try:
        return compute(name, function, a, b)
    except np.linalg.LinAlgError:
        raise ValueError(f"{name}: the matrix is singular, so that there is no solution.") from None


def _substituted(a: Any, b: Any) -> Any:
    """Solves a x = b for lower triangular matrices, from the first row on."""
    rows = []
    for i in range(a.shape[-1]):
        row = elementwise.divide(b[..., :1, :], a[..., i : i + 1, i : i + 1])
        rows.append(row)
        if i + 1 < a.shape[-1]:
            known = elementwise.multiply(a[..., i + 1 :, i : i + 1], row)
            b = elementwise.subtract(b[..., 1:, :], known)
    if rows:
        return joining.concatenate(rows, -2)
    batch = np.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    return shaping.broadcast_to(b, (*batch, *b.shape[-2:]))


class _LU(NamedTuple):
    """An LU decomposition with exchanged rows."""

    packed: Any  # (..., m, n): the upper triangular matrix, and below its diagonal the lower one
    pivots: Any  # int32 (..., min(m, n)): the row with which each row was exchanged
    order: Any  # int32 (..., m): the place in the matrix where each row was


def _unrolled_lu(x: Any) -> _LU:
    """Does Gaussian elimination with the largest number of each column as pivot."""
    rows, columns = x.shape[-2:]
    lines, across = np.arange(rows, dtype="int32"), np.arange(columns, dtype="int32")
    batch = tuple(x.shape[:-2])
    order = shaping.broadcast_to(dispatch.convert(lines, like=x), (*batch, rows))
    pivots = []
    for k in range(min(rows, columns)):
        sizes = elementwise.absolute(x[..., k:, k])
        pivot = elementwise.add(dispatch.convert(reduction.argmax(sizes, -1), "int32"), k)[
            ..., None
        ]
        pivots.append(pivot)
        # Rows k and pivot swap.
        swap = elementwise.where(
            elementwise.equal(pivot, lines), k, elementwise.where(lines == k, pivot, lines)
        )
        order = sorting.take_along_axis(order, swap, -1)
        x = sorting.take_along_axis(x, swap[..., None], -2)
        # A column of zeros needs no elimination.
        divisor = x[..., k : k + 1, k]
        divisor = elementwise.where(elementwise.equal(divisor, 0.0), 1.0, divisor)
        factors = elementwise.where(lines > k, elementwise.divide(x[..., :, k], divisor), 0.0)
        row = elementwise.where(across > k, x[..., k, :], 0.0)
        left = elementwise.subtract(x, _times(factors, row))
        below = (lines > k)[:, None] & (across == k)
        x = elementwise.where(below, factors[..., None], left)
    return _LU(x, joining.concatenate(pivots, -1) if pivots else order[..., :0], order)


@op
@at_once
def lu_factor(x: Any) -> Any:
    """Gauss' decomposition into a lower and an upper triangular matrix, with rows exchanged.

    Args:
        x: (..., m, n)

    Returns:
        (LU, pivots), LU in float64 for float64, else float32. LU (..., m, n) has the upper
        triangular matrix and below its diagonal the lower one, whose diagonal is 1. Row i was
        exchanged with row pivots[..., i], one after the other; int32 (..., min(m, n)).

    Raises:
        ValueError: for less than two axes.

    Example:

    >>> from kerascnn import ops
    >>> lu, pivots = ops.lu_factor([[1.0, 2.0], [2.0, 8.0]])
    >>> lu.numpy().tolist(), pivots.numpy().tolist()
    ([[2.0, 8.0], [0.5, -2.0]], [1, 1])
    """
    packed, pivots, _ = _unrolled_lu(matrices(x, square=False))
    return packed, pivots


def _diagonal(x: Any) -> Any:
    """Returns the diagonal of square matrices."""
    eye = np.eye(x.shape[-1], dtype=bool)
    return reduction.sum(elementwise.where(eye, x, 0.0), -1)


def _swaps_sign(pivots: Any) -> Any:
    """Returns -1 to the power of the number of row exchanges."""
    stayed = elementwise.equal(pivots, np.arange(pivots.shape[-1], dtype="int32"))
    return statistics.prod(elementwise.where(stayed, 1, -1), -1)


@op
@at_once
def det(x: Any) -> Any:
    """The determinants of square matrices.

    Args:
        x: (..., n, n)

    Returns:
        (...), float64 for float64, else float32; integers count as `floatx`. It is 1
        for n = 0.

    Raises:
        ValueError: for matrices that are not square.

    Example:

    >>> from kerascnn import ops
    >>> ops.det([[1.0, 2.0], [3.0, 5.0]]).numpy().round(4).tolist()
    -1.0
    """
    x = matrices(x)
    if is_known(x):
        return compute("det", np.linalg.det, x)
    packed, pivots, _ = _unrolled_lu(x)
    sign = dispatch.convert(_swaps_sign(pivots), packed.dtype)
    return elementwise.multiply(statistics.prod(_diagonal(packed), -1), sign)


@op
@at_once
def slogdet(x: Any) -> Any:
    """The signs of determinants, and the logarithms of their absolute values.

    The logarithm is finite where the determinant itself would be out of the dtype's range.

    Args:
        x: (..., n, n)

    Returns:
        (sign, logarithm), each (...), float64 for float64, else float32; 0 and -inf for singular
        matrices.

    Raises:
        ValueError: for matrices that are not square.

    Example:

    >>> from kerascnn import ops
    >>> sign, logarithm = ops.slogdet([[0.0, 1.0], [1.0, 0.0]])
    >>> sign.numpy().tolist(), logarithm.numpy().tolist()
    (-1.0, 0.0)
    """
    x = matrices(x)
    if is_known(x):
        return compute("slogdet", lambda a: tuple(np.linalg.slogdet(a)), x)
    packed, pivots, _ = _unrolled_lu(x)
    diagonal = _diagonal(packed)
    sign = elementwise.multiply(
        dispatch.convert(_swaps_sign(pivots), packed.dtype),
        statistics.prod(elementwise.sign(diagonal), -1),
    )
    return sign, reduction.sum(elementwise.log(elementwise.absolute(diagonal)), -1)


@op
@at_once
def logdet(x: Any) -> Any:
    """The logarithms of determinants: -inf for singular matrices, NaN for negative determinants.

    Args:
        x: (..., n, n)

    Returns:
        (...), float64 for float64, else float32; integers count as `floatx`.

    Raises:
        ValueError: for matrices that are not square.

    Example:

    >>> from kerascnn import ops
    >>> ops.logdet([[1.0, 0.0], [0.0, 1.0]]).numpy().tolist()
    0.0
    """
    sign, logarithm = slogdet(x)
    return elementwise.where(elementwise.less(sign, 0.0), float("nan"), logarithm)


@op
@at_once
def solve(a: Any, b: Any) -> Any:
    """x for which a x = b.

    Args:
        a: Square matrices (..., n, n).
        b: (..., n) or (..., n, k)

    Returns:
        The shape of b (its batch axes and those of a broadcast), float64 if one of them is, else
        float32.

    Raises:
        ValueError: for shapes that don't fit, or known matrices that are singular; in a compiled
            step the latter give infinities or NaN.

    Example:

    >>> from kerascnn import ops
    >>> ops.solve([[2.0, 1.0], [0.0, 1.0]], [4.0, 2.0]).numpy().tolist()
    [1.0, 2.0]
    """
    a, b, is_vector = _system(a, b)
    if is_known(a) and is_known(b):
        result = _solved_on_host("solve", np.linalg.solve, a, b)
    else:
        result = _eliminated(a, b)
    return shaping.squeeze(result, -1) if is_vector else result


def _eliminated(a: Any, b: Any) -> Any:
    packed, _, order = _unrolled_lu(a)
    batch = np.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    b = shaping.broadcast_to(b, (*batch, *b.shape[-2:]))
    order = shaping.broadcast_to(order, (*batch, order.shape[-1]))
    b = sorting.take_along_axis(b, order[..., None], -2)
    n = a.shape[-1]
    unit = elementwise.where(np.eye(n, dtype=bool), 1.0, packed)
    return _triangular(packed, _triangular(unit, b, True), False)


@op
@at_once
def inv(x: Any) -> Any:
    """The inverses of square matrices.

    To solve a system, `solve` is faster and loses fewer digits.

    Args:
        x: (..., n, n)

    Returns:
        (..., n, n), float64 for float64, else float32; integers count as `floatx`.

    Raises:
        ValueError: for matrices that are not square, or known and singular; in a compiled step the
            latter give infinities or NaN.

    Example:

    >>> from kerascnn import ops
    >>> ops.inv([[2.0, 0.0], [0.0, 4.0]]).numpy().tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    x = matrices(x)
    if is_known(x):
        return _solved_on_host("inv", lambda a, _: np.linalg.inv(a), x, x)
    return _eliminated(x, _identity(x.shape[-1], x))


@op
@at_once
def qr(x: Any, mode: Literal["reduced", "complete"] = "reduced") -> Any:
    """An orthogonal and an upper triangular matrix whose product is x.

    Args:
        x: (..., m, n)
        mode: "reduced" for (..., m, k) and (..., k, n), k being the smaller of m and n, or
            "complete" for (..., m, m) and (..., m, n).

    Returns:
        (q, r), float64 for float64, else float32. Numbers on the diagonal of r can be negative.

    Raises:
        ValueError: for another mode, or less than two axes.

    Source: Householder's reflections, with the signs of LAPACK.

    Example:

    >>> from kerascnn import ops
    >>> q, r = ops.qr([[3.0], [4.0]])
    >>> r.numpy().round(4).tolist()
    [[-5.0]]
    """
    if mode not in ("reduced", "complete"):
        raise ValueError(
            "`mode` argument value not supported. Expected one of {'reduced', 'complete'}. "
            f"Received: mode={mode}"
        )
    x = matrices(x, square=False)
    if is_known(x):
        return compute("qr", lambda a: tuple(np.linalg.qr(a, mode)), x)
    rows, columns = x.shape[-2:]
    q = shaping.broadcast_to(_identity(rows, x), (*x.shape[:-2], rows, rows))
    for k in range(min(rows - 1, columns)):
        x, q = _reflected(x, q, k)
    kept = rows if mode == "complete" else min(rows, columns)
    above = np.arange(kept)[:, None] <= np.arange(columns)
    return q[..., :, :kept], elementwise.where(above, x[..., :kept, :], 0.0)


def _reflected(x: Any, q: Any, k: int) -> tuple[Any, Any]:
    """Returns x with zeros below the diagonal of column k, and q after the same reflection."""
    lines = np.arange(x.shape[-2])
    column = x[..., :, k]
    rest = reduction.sum(elementwise.where(lines > k, elementwise.square(column), 0.0), -1, True)
    first = column[..., k : k + 1]
    # A column that already has its zeros does not change.
    needed = elementwise.greater(rest, 0.0)
    length = elementwise.where(needed, elementwise.add(rest, elementwise.square(first)), 1.0)
    size = elementwise.sqrt(length)
    target = elementwise.where(elementwise.less(first, 0.0), size, elementwise.negative(size))
    head = elementwise.subtract(first, target)
    normal = elementwise.where(lines < k, 0.0, elementwise.where(lines == k, head, column))
    # This is |normal|^2 / 2.
    scale = elementwise.negative(elementwise.multiply(target, head))
    scaled = elementwise.where(needed, elementwise.divide(normal, scale), 0.0)
    along = reduction.sum(elementwise.multiply(normal[..., None], x), -2)
    x = elementwise.subtract(x, _times(scaled, along))
    along = reduction.sum(elementwise.multiply(q, normal[..., None, :]), -1)
    return x, elementwise.subtract(q, _times(along, scaled))

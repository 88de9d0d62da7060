"""Eigenvalues and singular values, and what is made of them.

They are found by loops that run until they converge, which a traced step has none of: NumPy, which
calls LAPACK, computes them on the host.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from kerascnn.ops import dispatch
from kerascnn.ops.host import at_once, compute
from kerascnn.ops.matrices import matrices, wide
from kerascnn.symbolic.operation import op

__all__ = ["eigh", "lstsq", "matrix_rank", "pinv", "svd"]

Array = np.ndarray[Any, Any]


def _decomposed(name: str, function: Callable[..., Any], *operands: Any) -> Any:
    """Computes a function of matrices with `host.compute`.

    Raises:
        ValueError: for NaN and infinities, for which loops of LAPACK may never end, and where they
            do not converge.
    """

    def checked(*arrays: Array) -> Any:
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError(
                f"{name}: expected finite numbers. Received NaN or infinity, with which its "
                "iterations may never end; see keras.ops.isfinite for where they are."
            )
        try:
            return function(*arrays)
        except np.linalg.LinAlgError as error:
            raise ValueError(f"{name}: {error}") from None

    return compute(name, checked, *operands)


@op
@at_once
def eigh(x: Any) -> Any:
    """The eigenvalues and eigenvectors of symmetric matrices; not in compiled steps.

    Args:
        x: (..., n, n), of which the part up to the diagonal counts.

    Returns:
        (values, vectors), float64 for float64, else float32: (..., n) from the smallest on, and
        (..., n, n), a vector in each column, whose sign is any.

    Raises:
        ValueError: for matrices that are not square, and values of a compiled step.

    Example:

    >>> from kerascnn import ops
    >>> ops.eigh([[2.0, 0.0], [0.0, 1.0]])[0].numpy().tolist()
    [1.0, 2.0]
    """
    return _decomposed("eigh", lambda a: tuple(np.linalg.eigh(a)), matrices(x))


@op
@at_once
def svd(x: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Singular values and vectors, for which x is u diag(s) v; not in compiled steps.

    Args:
        x: (..., m, n)
        full_matrices: Whether u is (..., m, m) and v (..., n, n), not (..., m, k) and (..., k, n)
            with k the smaller of m and n.
        compute_uv: Whether the vectors are returned, and not only s.

    Returns:
        (u, s, v), or s: (..., k), from the largest on; float64 for float64, else float32. The signs
        of the vectors are any.

    Raises:
        ValueError: for less than two axes, numbers that are not finite, and values of a
            compiled step.

    Example:

    >>> from kerascnn import ops
    >>> ops.svd([[0.0, 2.0], [1.0, 0.0]], compute_uv=False).numpy().tolist()
    [2.0, 1.0]
    """
    x = matrices(x, square=False)
    if not compute_uv:
        return _decomposed("svd", lambda a: np.linalg.svd(a, compute_uv=False), x)
    return _decomposed("svd", lambda a: tuple(np.linalg.svd(a, full_matrices)), x)


@op
@at_once
def lstsq(a: Any, b: Any, rcond: float | None = None) -> Any:
    """The shortest x for which |a x - b| is least; not in compiled steps.

    Args:
        a: (m, n)
        b: (m,) or (m, k)
        rcond: Singular values of `a` up to so many times the largest one count as 0; by default
            the dtype's epsilon times the larger of m and n.

    Returns:
        (n,) or (n, k), float64 if one of them is, else float32.

    Raises:
        ValueError: for shapes that don't fit, numbers that are not finite, and values of a
            compiled step.

    Example:

    >>> from kerascnn import ops
    >>> ops.lstsq([[1.0], [1.0]], [1.0, 3.0]).numpy().round(4).tolist()
    [2.0]
    """
    a = matrices(a, square=False)
    b = dispatch.convert(b, like=a)
    a, b = (wide(x) for x in dispatch.operands(a, b))
    if len(a.shape) != 2 or len(b.shape) not in (1, 2) or a.shape[0] != b.shape[0]:
        raise ValueError(
            "lstsq: a is (m, n) and b (m,) or (m, k). Received: "
            f"a.shape={tuple(a.shape)}, b.shape={tuple(b.shape)}"
        )
    return _decomposed("lstsq", lambda m, y: np.linalg.lstsq(m, y, rcond=rcond)[0], a, b)


@op
@at_once
def matrix_rank(x: Any, tol: float | None = None) -> Any:
    """Returns how many singular values are not 0; not in compiled steps.

    Args:
        x: (..., m, n); computed in float32 unless it is float64.
        tol: Those up to here count as 0; by default the largest one times the dtype's epsilon
            times the larger of m and n.

    Returns:
        (...) int32

    Raises:
        ValueError: for less than two axes, numbers that are not finite, and values of a
            compiled step.

    Example:

    >>> from kerascnn import ops
    >>> ops.matrix_rank([[1.0, 2.0], [2.0, 4.0]]).numpy().tolist()
    1
    """
    rank = functools.partial(np.linalg.matrix_rank, tol=tol)
    return _decomposed("matrix_rank", lambda a: rank(a).astype("int32"), matrices(x, square=False))


@op
@at_once
def pinv(x: Any, rcond: float | None = None) -> Any:
    """The pseudoinverses of matrices, of Moore and Penrose; not in compiled steps.

    Args:
        x: (..., m, n)
        rcond: Singular values up to so many times the largest one count as 0; by default the
            dtype's epsilon times the larger of m and n.

    Returns:
        (..., n, m), float64 for float64, else float32.

    Raises:
        ValueError: for less than two axes, numbers that are not finite, and values of a
            compiled step.

    Example:

    >>> from kerascnn import ops
    >>> ops.pinv([[2.0], [0.0]]).numpy().tolist()
    [[0.5, 0.0]]
    """

    def invert(a: Array) -> Any:
        cutoff = float(np.finfo(a.dtype).eps) * max(a.shape[-2:]) if rcond is None else rcond
        return np.linalg.pinv(a, rcond=cutoff)

    return _decomposed("pinv", invert, matrices(x, square=False))

"""Diagonals of matrices, and what lies above and below them."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from kerascnn import dtypes, file_budget
from kerascnn.ops import creation, dispatch, elementwise, reduction, shaping
from kerascnn.symbolic.operation import op

__all__ = [
    "diag",
    "diagflat",
    "diagonal",
    "identity",
    "trace",
    "tri",
    "tril",
    "triu",
]


def identity(n: int, dtype: Any = None) -> Any:
    """The square matrix with ones on its diagonal.

    Args:
        n: Number of rows and of columns.
        dtype: By default `floatx`.

    Returns:
        (n, n)

    Example:

    >>> from kerascnn import ops
    >>> ops.identity(2).numpy().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return creation.eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """A matrix of ones at and below the k-th diagonal and zeros above.

    Args:
        N: Number of rows.
        M: Number of columns, by default N.
        k: The diagonal: 0 for the main one, positive above it, negative below.
        dtype: By default `floatx`.

    Returns:
        (N, M)

    Example:

    >>> from kerascnn import ops
    >>> ops.tri(2, 3).numpy().tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    """
    name = dtypes.standardize_dtype(dtype)
    return dispatch.convert(np.tri(N, M, k, dtypes.numpy_dtype(name)))


def _triangle(x: Any, k: int, name: str, lower: bool) -> Any:
    x = dispatch.convert(x)
    if len(x.shape) < 2:
        raise ValueError(f"{name}: needs at least 2 axes. Received: shape={tuple(x.shape)}")
    rows, columns = x.shape[-2:]
    file_budget.check_positions(rows * columns // 8, name)
    kept = np.tri(rows, columns, k if lower else k - 1, bool)
    return elementwise.where(kept if lower else ~kept, x, creation.zeros_like(x))


@op
def tril(x: Any, k: int = 0) -> Any:
    """The matrices of the last two axes with zeros above the k-th diagonal.

    Args:
        x: (..., rows, columns), of any dtype.
        k: The diagonal: 0 for the main one, positive above it, negative below.

    Returns:
        The shape and dtype of `x`.

    Raises:
        ValueError: for fewer than 2 axes.

    Example:

    >>> from kerascnn import ops
    >>> ops.tril([[1, 2], [3, 4]]).numpy().tolist()
    [[1, 0], [3, 4]]
    """
    return _triangle(x, k, "tril", True)


@op
def triu(x: Any, k: int = 0) -> Any:
    """The matrices of the last two axes with zeros below the k-th diagonal.

    Args:
        x: (..., rows, columns), of any dtype.
        k: The diagonal: 0 for the main one, positive above it, negative below.

    Returns:
        The shape and dtype of `x`.

    Raises:
        ValueError: for fewer than 2 axes.

    Example:

    >>> from kerascnn import ops
    >>> ops.triu([[1, 2], [3, 4]]).numpy().tolist()
    [[1, 2], [0, 4]]
    """
    return _triangle(x, k, "triu", False)


@op
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonals of the matrices that two axes make, along a new last axis.

    Args:
        x: Tensor of at least 2 axes, of any dtype.
        offset: The diagonal: 0 for the main one, positive above it, negative below.
        axis1: The axis of rows.
        axis2: The axis of columns.

    Returns:
        The shape of `x` without the two axes, then the diagonal (which is empty where `offset`
        lies outside), in the dtype of `x`.

    Raises:
        ValueError: for fewer than 2 axes.

    Example:

    >>> from kerascnn import ops
    >>> ops.diagonal([[1, 2], [3, 4]]).numpy().tolist()
    [1, 4]
    """
    x = dispatch.convert(x)
    if len(x.shape) < 2:
        raise ValueError(f"diagonal: needs at least 2 axes. Received: shape={tuple(x.shape)}")
    x = shaping.moveaxis(x, (axis1, axis2), (-2, -1))
    rows, columns = x.shape[-2:]
    i = np.arange(builtins.max(-offset, 0), builtins.max(-offset, 0) + builtins.max(rows, columns))
    i = i[(i < rows) & (i + offset >= 0) & (i + offset < columns)]
    flat = shaping.reshape(x, (*x.shape[:-2], rows * columns))
    return shaping.take(flat, (i * columns + i + offset).astype("int32"), -1)


@op
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The sum along the diagonal.

    Args:
        x: Tensor of at least 2 axes, of any dtype.
        offset: The diagonal: 0 for the main one, positive above it, negative below.
        axis1: The axis of rows.
        axis2: The axis of columns.

    Returns:
        The shape of `x` without the two axes, in its dtype; bool and integers shorter than
        int32 are added up as int32.

    Raises:
        ValueError: for fewer than 2 axes.

    Example:

    >>> from kerascnn import ops
    >>> ops.trace([[1, 2], [3, 4]]).numpy().tolist()
    5
    """
    return reduction.sum(diagonal(x, offset, axis1, axis2), -1)


@op
def diag(x: Any, k: int = 0) -> Any:
    """The k-th diagonal of a matrix, or the matrix with the vector x on its k-th diagonal.

    Args:
        x: (rows, columns) or (n,), of any dtype.
        k: The diagonal: 0 for the main one, positive above it, negative below.

    Returns:
        Of a matrix its diagonal; of a vector (n + |k|, n + |k|). The dtype is that of `x`.

    Raises:
        ValueError: for tensors of other than 1 or 2 axes.

    Example:

    >>> from kerascnn import ops
    >>> ops.diag([1, 2]).numpy().tolist()
    [[1, 0], [0, 2]]
    >>> ops.diag([[1, 2], [3, 4]], k=1).numpy().tolist()
    [2]
    """
    x = dispatch.convert(x)
    if len(x.shape) == 2:
        return diagonal(x, k)
    if len(x.shape) != 1:
        raise ValueError(f"diag: x must have 1 or 2 axes. Received: shape={tuple(x.shape)}")
    n = x.shape[0] + builtins.abs(k)
    file_budget.check_positions(n * n // 8, "diag")
    place = np.eye(n, n, k, bool)
    padded = shaping.pad(x, [[builtins.max(-k, 0), builtins.max(k, 0)]])
    return elementwise.where(
        place, shaping.expand_dims(padded, 1), creation.zeros_like(shaping.expand_dims(padded, 1))
    )


@op
def diagflat(x: Any, k: int = 0) -> Any:
    """The matrix with all elements of x on its k-th diagonal.

    Args:
        x: Tensor of any shape and dtype.
        k: The diagonal: 0 for the main one, positive above it, negative below.

    Returns:
        (n + |k|, n + |k|) for n elements, in the dtype of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.diagflat([[1, 2]]).numpy().tolist()
    [[1, 0], [0, 2]]
    """
    return diag(shaping.ravel(x), k)

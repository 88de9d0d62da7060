"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.ops import dispatch, elementwise, reduction, shaping, spectra
from kerascnn.symbolic.inference import unequal_sizes
from kerascnn.symbolic.operation import op

__all__ = [
    "dense",
    "dot",
    "matmul",
    "norm",
]

_OF_SINGULAR_VALUES: dict[Any, Any] = {2: reduction.max, -2: reduction.min, "nuc": reduction.sum}


@dispatch.at_once("matmul")
@op
def matmul(x1: Any, x2: Any) -> Any:
    """The matrix product over the last two axes, the others being broadcast as in NumPy.

    Products of int8 are summed in int32; of int8 and bool, in int8.

    Args:
        x1: (..., m, k), or (k,). Of several dtypes, both operands take the one that they promote
            to.
        x2: (..., k, n), or (k,).

    Returns:
        (..., m, n), without the axis that a vector lacks; in the operands' common dtype, but int32
        for int8.

    Raises:
        ValueError: for a number, and where the inner sizes differ or the others don't broadcast.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.matmul.html

    Example:

    >>> from kerascnn import ops
    >>> ops.matmul([[1.0, 2.0]], [[3.0], [4.0]]).numpy().tolist()
    [[11.0]]
    >>> ops.matmul(ops.ones((5, 2, 3)), ops.ones((3, 4))).shape
    (5, 2, 4)
    """
    a, b = dispatch.operands(x1, x2)
    if not a.shape or not b.shape:
        raise ValueError(
            f"matmul: both operands need an axis. Received shapes: {tuple(a.shape)}, "
            f"{tuple(b.shape)}"
        )
    drop_row, drop_column = len(a.shape) == 1, len(b.shape) == 1
    if drop_row:
        a = shaping.expand_dims(a, 0)
    if drop_column:
        b = shaping.expand_dims(b, -1)
    if a.shape[-1] != b.shape[-2]:
        raise unequal_sizes(
            f"matmul: the last axis of the first operand must be as long as the one before the "
            f"last of the second. Received shapes: {tuple(a.shape)}, {tuple(b.shape)}",
            a.shape[-1],
            b.shape[-2],
        )
    result = _product(a, b)
    if any(str(getattr(x, "dtype", None)) == "bool" for x in (x1, x2)):
        result = dispatch.convert(result, a.dtype)
    if drop_row:
        result = shaping.squeeze(result, -2)
    return shaping.squeeze(result, -1) if drop_column else result


def _product(a: Any, b: Any) -> Any:
    if len(b.shape) == 2 and len(a.shape) > 2:
        # One product of many rows is faster than many small ones.
        rows = int(np.prod(a.shape[:-1], dtype=np.int64))
        result = matrix_product(shaping.reshape(a, (rows, a.shape[-1])), b)
        return shaping.reshape(result, (*a.shape[:-1], b.shape[-1]))
    batch = np.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    if tuple(a.shape[:-2]) != batch:
        a = shaping.broadcast_to(a, (*batch, *a.shape[-2:]))
    if tuple(b.shape[:-2]) != batch:
        b = shaping.broadcast_to(b, (*batch, *b.shape[-2:]))
    return matrix_product(a, b)


def matrix_product(a: Any, b: Any, turned_a: bool = False, turned_b: bool = False) -> Any:
    """Products of matrices of one dtype over equal batch axes.

    Args:
        a: (*batch, m, k), or (*batch, k, m) where `turned_a`.
        b: (*batch, k, n), or (*batch, n, k) where `turned_b`; the dtype of `a`.
        turned_a: Whether the matrices of `a` are to be transposed.
        turned_b: Whether those of `b` are.

    Returns:
        (*batch, m, n) in the same dtype, but int32 for products of int8.
    """
    transposed = {"transpose_a": turned_a, "transpose_b": turned_b}
    if a.dtype == b.dtype == "int8":
        return dispatch.apply_one("integer_matmul", [a, b], transposed)
    if dtypes.is_float(a.dtype):
        return dispatch.apply_one("matmul", [a, b], transposed)
    # float64 holds integers up to 2^53 exactly.
    wide = [dispatch.convert(x, "float64") for x in (a, b)]
    return dispatch.convert(dispatch.apply_one("matmul", wide, transposed), a.dtype)


@op
def dot(x1: Any, x2: Any) -> Any:
    """The product over the last axis of x1 and the first of x2; with a number, the plain product.

    Args:
        x1: (..., k), or a number. Of several dtypes, both operands take the one that they promote
            to.
        x2: (k,), (k, n), or a number.

    Returns:
        (...), (..., n), or the shape of the other operand, in the dtype that `matmul` gives.

    Raises:
        ValueError: where the sizes differ, or x2 has more axes.

    Example:

    >>> from kerascnn import ops
    >>> ops.dot([1.0, 2.0], [3.0, 4.0]).numpy().tolist()
    11.0
    >>> ops.dot([[1, 2], [3, 4]], 10).numpy().tolist()
    [[10, 20], [30, 40]]
    """
    a, b = dispatch.operands(x1, x2)
    if not a.shape or not b.shape:
        return elementwise.multiply(a, b)
    if len(b.shape) > 2:
        raise ValueError(f"dot: the second operand has more than 2 axes: {tuple(b.shape)}")
    return matmul(a, b)


@op
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The length of vectors, or a norm of matrices.

    Args:
        x: Tensor of any shape; integers become `floatx`.
        ord: None for the Euclidean length (of all elements where `axis` is None); for vectors a
            number p, for (sum |x|^p)^(1/p), 0 or an infinity; for matrices "fro", 1, -1 or an
            infinity, and outside of compiled steps 2, -2 (the largest and the smallest singular
            value) or "nuc" (the sum of them).
        axis: One axis of vectors, or two of matrices. By default all axes, of which there must be
            one or two where `ord` is given.
        keepdims: Whether the axes stay, with size 1.

    Returns:
        A tensor of the other axes, in the dtype of `x` if that is floating, else `floatx`.

    Raises:
        ValueError: for other norms, and for those of singular values in a compiled step.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.linalg.norm.html

    Example:

    >>> from kerascnn import ops
    >>> ops.norm([3.0, 4.0]).numpy().tolist()
    5.0
    >>> ops.norm([[3.0, 4.0], [6.0, 8.0]], axis=1).numpy().tolist()
    [5.0, 10.0]
    """
    x = dispatch.convert_floating(x)
    if axis is None:
        axes = list(range(len(x.shape)))
    else:
        axes = [axis] if isinstance(axis, int) else list(axis)
    if ord is None or (ord in ("fro", 2) and len(axes) == (2 if ord == "fro" else 1)):
        return elementwise.sqrt(reduction.sum(elementwise.square(x), axes, keepdims))
    size = elementwise.absolute(x)
    if len(axes) == 1 and not isinstance(ord, str):
        return _vector_norm(size, ord, axes[0], keepdims)
    if len(axes) == 2 and ord in (1, -1, np.inf, -np.inf):
        rows, columns = (a % len(x.shape) for a in axes)
        along, others = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = reduction.sum(size, along, True)
        result = (reduction.max if ord > 0 else reduction.min)(sums, others, True)
        return result if keepdims else shaping.squeeze(result, (rows, columns))
    if len(axes) == 2 and ord in _OF_SINGULAR_VALUES:
        values = spectra.svd(shaping.moveaxis(x, axes, (-2, -1)), compute_uv=False)
        result = _OF_SINGULAR_VALUES[ord](values, -1)
        return (
            shaping.expand_dims(result, sorted(a % len(x.shape) for a in axes))
            if keepdims
            else result
        )
    raise ValueError(
        f"norm: ord={ord!r} is not available for {len(axes)} axes. Vectors have norms of any "
        "number, matrices 'fro', 'nuc', 1, -1, 2, -2, inf and -inf."
    )


def _vector_norm(size: Any, ord: float, axis: int, keepdims: bool) -> Any:
    if ord == np.inf:
        return reduction.max(size, axis, keepdims)
    if ord == -np.inf:
        return reduction.min(size, axis, keepdims)
    if ord == 0:
        nonzero = dispatch.convert(elementwise.not_equal(size, 0), size.dtype)
        return reduction.sum(nonzero, axis, keepdims)
    total = reduction.sum(elementwise.power(size, float(ord)), axis, keepdims)
    return elementwise.power(total, 1.0 / ord)


@op
def dense(x: Any, kernel: Any, bias: Any = None) -> Any:
    """x @ kernel + bias over the last axis, in one pass.

    Args:
        x: (..., inputs); integers become `floatx`.
        kernel: (inputs, units), converted to the dtype of `x`.
        bias: (units,), likewise, or None.

    Returns:
        (..., units) in the dtype of `x`.

    Raises:
        ValueError: for sizes that don't fit.

    Example:

    >>> from kerascnn import ops
    >>> ops.dense([[1.0, 2.0]], [[1.0], [10.0]], [0.5]).numpy().tolist()
    [[21.5]]
    """
    x = dispatch.convert_floating(x)
    kernel = dispatch.convert(kernel, x.dtype)
    leading = tuple(x.shape[:-1])
    if len(leading) != 1:
        rows = 1
        for n in leading:
            rows *= n
        x = shaping.reshape(x, (rows, x.shape[-1]))
    operands = [x, kernel] if bias is None else [x, kernel, dispatch.convert(bias, x.dtype)]
    attributes = {"activation": "linear", "activation_alpha": 0.0}
    y = dispatch.apply_one("dense", operands, attributes)
    return y if len(leading) == 1 else shaping.reshape(y, (*leading, y.shape[-1]))

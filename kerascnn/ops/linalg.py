"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.ops import dispatch, elementwise, reduction, shaping
from kerascnn.symbolic.operation import op


@op
def matmul(x1: Any, x2: Any) -> Any:
    """The matrix product over the last two axes, the others being broadcast as in NumPy.

    Raises:
        ValueError: where the inner sizes differ.

    Example:

    >>> from kerascnn import ops
    >>> ops.matmul([[1.0, 2.0]], [[3.0], [4.0]]).numpy().tolist()
    [[11.0]]
    """
    a, b = dispatch.operands(x1, x2)
    if not dtypes.is_float(a.dtype):
        # float64 holds integers up to 2^53.
        narrow = all(dispatch.type_of(dispatch.convert(x)) == "int8" for x in (x1, x2))
        name = "int32" if narrow else a.dtype
        wide = [dispatch.convert(x, "float64") for x in (a, b)]
        return dispatch.convert(matmul(*wide), name)
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
        raise ValueError(
            f"matmul: the last axis of the first operand must be as long as the one before the "
            f"last of the second. Received shapes: {tuple(a.shape)}, {tuple(b.shape)}"
        )
    result = _product(a, b)
    if drop_row:
        result = shaping.squeeze(result, -2)
    return shaping.squeeze(result, -1) if drop_column else result


def _product(a: Any, b: Any) -> Any:
    plain = {"transpose_a": False, "transpose_b": False}
    if len(b.shape) == 2 and len(a.shape) > 2:
        # One product of many rows is faster than many small ones.
        rows = int(np.prod(a.shape[:-1], dtype=np.int64))
        flat = shaping.reshape(a, (rows, a.shape[-1]))
        result = dispatch.apply_one("matmul", [flat, b], plain)
        return shaping.reshape(result, (*a.shape[:-1], b.shape[-1]))
    batch = np.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    if tuple(a.shape[:-2]) != batch:
        a = shaping.broadcast_to(a, (*batch, *a.shape[-2:]))
    if tuple(b.shape[:-2]) != batch:
        b = shaping.broadcast_to(b, (*batch, *b.shape[-2:]))
    return dispatch.apply_one("matmul", [a, b], plain)


@op
def dot(x1: Any, x2: Any) -> Any:
    """As `matmul` for up to two axes; with a number, the plain product."""
    a, b = dispatch.operands(x1, x2)
    if not a.shape or not b.shape:
        return elementwise.multiply(a, b)
    if len(b.shape) > 2:
        raise ValueError(f"dot: the second operand has more than 2 axes: {tuple(b.shape)}")
    return matmul(a, b)


@op
def norm(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The Euclidean length along axes, by default of all elements."""
    x = dispatch.convert(x)
    if not dtypes.is_float(x.dtype):
        x = dispatch.convert(x, dtypes.float_result_type(x.dtype))
    return elementwise.sqrt(reduction.sum(elementwise.square(x), axis, keepdims))

"""Products of vectors and of tensors, built on `matmul`."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import dtypes, file_budget
from kerascnn.ops import arrays, dispatch, elementwise, joining, matrix_products, reduction, shaping
from kerascnn.ops.shaping import _axis
from kerascnn.symbolic.inference import unequal_sizes
from kerascnn.symbolic.operation import op

__all__ = [
    "cdist",
    "cross",
    "dot_product_attention",
    "inner",
    "kron",
    "outer",
    "tensordot",
    "vdot",
]


def _count(sizes: Any) -> int:
    return int(np.prod(list(sizes), dtype=np.int64))


def _contract(a: Any, b: Any) -> Any:
    """Multiplies (m, k) by (k, n); integers in float64, which holds them exactly up to 2^53."""
    if dtypes.is_float(a.dtype):
        return matrix_products.matmul(a, b)
    wide = matrix_products.matmul(dispatch.convert(a, "float64"), dispatch.convert(b, "float64"))
    return dispatch.convert(wide, a.dtype)


@op
def tensordot(x1: Any, x2: Any, axes: Any = 2) -> Any:
    """The sum of products over axes of both tensors.

    Args:
        x1: First tensor, of any shape and dtype.
        x2: Second tensor.
        axes: How many of the last axes of x1 and the first of x2 are summed over, or two lists
            of axes (or two axes).

    Returns:
        The other axes of x1, then those of x2, in the dtype that both promote to. Integers are
        multiplied in float64, which is exact up to 2^53.

    Raises:
        ValueError: for axes that do not exist or are of different sizes.

    Example:

    >>> from kerascnn import ops
    >>> ops.tensordot(ops.ones((2, 3)), ops.ones((3, 4)), 1).shape
    (2, 4)
    """
    a, b = dispatch.operands(x1, x2)
    if isinstance(axes, int):
        if not 0 <= axes <= min(len(a.shape), len(b.shape)):
            raise ValueError(
                "tensordot: both tensors must have the axes that are summed over. Received shapes: "
                f"{tuple(a.shape)}, {tuple(b.shape)}, axes={axes}"
            )
        first = list(range(len(a.shape) - axes, len(a.shape)))
        second = list(range(axes))
    else:
        first, second = ([v] if isinstance(v, int) else list(v) for v in axes)
        first = [_axis(v, len(a.shape), "tensordot") for v in first]
        second = [_axis(v, len(b.shape), "tensordot") for v in second]
    if [a.shape[v] for v in first] != [b.shape[v] for v in second]:
        pairs = [(a.shape[v], b.shape[w]) for v, w in zip(first, second, strict=False)]
        raise unequal_sizes(
            "tensordot: the axes summed over must be of the same sizes. Received shapes: "
            f"{tuple(a.shape)}, {tuple(b.shape)}, axes={axes}",
            *next(((m, n) for m, n in pairs if m != n), (0, 0)),
        )
    rows = [v for v in range(len(a.shape)) if v not in first]
    columns = [v for v in range(len(b.shape)) if v not in second]
    shape = [*(a.shape[v] for v in rows), *(b.shape[v] for v in columns)]
    length = _count(a.shape[v] for v in first)
    a = shaping.reshape(
        shaping.transpose(a, [*rows, *first]), (_count(a.shape[v] for v in rows), length)
    )
    b = shaping.reshape(
        shaping.transpose(b, [*second, *columns]), (length, _count(b.shape[v] for v in columns))
    )
    return shaping.reshape(_contract(a, b), shape)


@op
def inner(x1: Any, x2: Any) -> Any:
    """The sum of products over the last axes; with a number, the plain product.

    Args:
        x1: (..., k), of any dtype.
        x2: (..., k)

    Returns:
        The other axes of x1, then those of x2, in the dtype that both promote to.

    Raises:
        ValueError: for last axes of different sizes.

    Example:

    >>> from kerascnn import ops
    >>> ops.inner([[1, 2], [3, 4]], [10, 1]).numpy().tolist()
    [12, 34]
    """
    a, b = dispatch.operands(x1, x2)
    if not a.shape or not b.shape:
        return elementwise.multiply(a, b)
    return tensordot(a, b, ([len(a.shape) - 1], [len(b.shape) - 1]))


@op
def outer(x1: Any, x2: Any) -> Any:
    """Each element of x1 times each of x2.

    Args:
        x1: Tensor of any shape and dtype, seen as one vector.
        x2: The same.

    Returns:
        (x1.size, x2.size), in the dtype that both promote to.

    Example:

    >>> from kerascnn import ops
    >>> ops.outer([1, 2], [3, 4, 5]).numpy().tolist()
    [[3, 4, 5], [6, 8, 10]]
    """
    a, b = dispatch.operands(x1, x2)
    return elementwise.multiply(shaping.reshape(a, (-1, 1)), shaping.reshape(b, (1, -1)))


@op
def vdot(x1: Any, x2: Any) -> Any:
    """The sum of the products of all elements of two tensors of one size.

    Args:
        x1: Tensor of any shape and dtype, seen as one vector.
        x2: Tensor of as many elements.

    Returns:
        One number, in the dtype that both promote to.

    Raises:
        ValueError: for different numbers of elements.

    Example:

    >>> from kerascnn import ops
    >>> ops.vdot([[1, 2], [3, 4]], [[1, 0], [0, 1]]).numpy().tolist()
    5
    """
    a, b = dispatch.operands(x1, x2)
    a, b = shaping.ravel(a), shaping.ravel(b)
    if a.shape != b.shape:
        raise ValueError(f"vdot: sizes differ. Received: {a.shape[0]} and {b.shape[0]} elements")
    return tensordot(a, b, 1)


@op
def kron(x1: Any, x2: Any) -> Any:
    """The Kronecker product: each element of x1 times the whole of x2, as blocks.

    Args:
        x1: Tensor of any shape and dtype.
        x2: The same; the one with fewer axes gets axes of size 1 in front.

    Returns:
        A tensor whose sizes are the products of both sizes, in the dtype that both promote to.

    Example:

    >>> from kerascnn import ops
    >>> ops.kron([[1, 2]], [[1, 1], [0, 1]]).numpy().tolist()
    [[1, 1, 2, 2], [0, 1, 0, 2]]
    """
    a, b = dispatch.operands(x1, x2)
    rank = max(len(a.shape), len(b.shape))
    sizes = [[1] * (rank - len(v.shape)) + list(v.shape) for v in (a, b)]
    a = shaping.reshape(a, [n for size in sizes[0] for n in (size, 1)])
    b = shaping.reshape(b, [n for size in sizes[1] for n in (1, size)])
    product = elementwise.multiply(a, b)
    return shaping.reshape(product, [m * n for m, n in zip(*sizes, strict=True)])


@op
def cross(
    x1: Any, x2: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    """The cross product of vectors of 2 or 3 elements.

    Args:
        x1: First vectors, of any dtype.
        x2: Second vectors, whose other axes broadcast with those of `x1`.
        axisa: The axis of x1 that holds the vectors.
        axisb: That of x2.
        axisc: That of the result, unless both have 2 elements.
        axis: All three.

    Returns:
        Vectors of 3 elements, or numbers where both have 2, in the dtype that both promote to.

    Raises:
        ValueError: for vectors of another length.

    Example:

    >>> from kerascnn import ops
    >>> ops.cross([1, 0, 0], [0, 1, 0]).numpy().tolist()
    [0, 0, 1]
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = dispatch.operands(x1, x2)
    a, b = shaping.moveaxis(a, axisa, -1), shaping.moveaxis(b, axisb, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError(
            "cross: vectors have 2 or 3 elements. Received shapes: "
            f"{tuple(a.shape)}, {tuple(b.shape)}"
        )
    p, q = ([v[..., i] if i < v.shape[-1] else None for i in range(3)] for v in (a, b))

    def minus(i: int, j: int) -> Any:
        """Computes p_i q_j - p_j q_i; missing third elements are 0."""
        left, right = (
            None if u is None or v is None else elementwise.multiply(u, v)
            for u, v in ((p[i], q[j]), (p[j], q[i]))
        )
        if left is None:
            assert right is not None
            return elementwise.negative(right)
        return left if right is None else elementwise.subtract(left, right)

    if p[2] is None and q[2] is None:
        return minus(0, 1)
    return shaping.moveaxis(joining.stack([minus(1, 2), minus(2, 0), minus(0, 1)], -1), -1, axisc)


@op
def cdist(x: Any, y: Any) -> Any:
    """The Euclidean distances of the rows of x and y.

    Args:
        x: (..., n, d). Integers and bool are computed as `floatx`.
        y: (..., m, d), whose axes in front broadcast with those of `x`.

    Returns:
        (..., n, m), floating.

    Raises:
        ValueError: for fewer than 2 axes, or rows of different lengths.

    Example:

    >>> from kerascnn import ops
    >>> ops.cdist([[0.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]]).numpy().tolist()
    [[5.0, 1.0]]
    """
    x, y = dispatch.operands(x, y, result=dtypes.float_result_type)
    if len(x.shape) < 2 or len(y.shape) < 2:
        raise ValueError("`cdist` inputs must have rank >= 2")
    if x.shape[-1] != y.shape[-1]:
        raise ValueError("Last dimension of inputs to `cdist` must match")
    apart = elementwise.subtract(shaping.expand_dims(x, -2), shaping.expand_dims(y, -3))
    return elementwise.sqrt(reduction.sum(elementwise.square(apart), -1))


@op
def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    scale: float | None = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
    attn_logits_soft_cap: float | None = None,
) -> Any:
    """softmax(query key^T * scale) value, for each head.

    Args:
        query: (batch, T, heads, d). Integers and bool are computed as `floatx`.
        key: (batch, S, K, d), heads being a multiple of K: as many neighbouring heads share
            one.
        value: (batch, S, K, d)
        bias: Added to the products, broadcast to (batch, heads, T, S).
        mask: Where it is False nothing is looked at, broadcast to the same.
        scale: By default 1 / sqrt(d).
        is_causal: Whether places look at earlier ones only.
        flash_attention: Only None and False: device, dtype and shapes say which kernels compute
            it.
        attn_logits_soft_cap: c, where products are cut softly to c tanh(product / c).

    Returns:
        (batch, T, heads, d), floating. Where the whole row of a mask is False, it is the mean
        of the values.

    Raises:
        ValueError: for other ranks, for a bias together with a mask, and for
            flash_attention=True.

    Source: Vaswani et al., "Attention Is All You Need", 2017; shared heads: Ainslie et al., "GQA",
    2023.

    Example:

    >>> from kerascnn import ops
    >>> query, key = ops.ones((1, 2, 4, 8)), ops.ones((1, 5, 2, 8))
    >>> ops.dot_product_attention(query, key, key).shape
    (1, 2, 4, 8)
    """
    if flash_attention:
        raise ValueError(
            "dot_product_attention: flash_attention=True is not available. Leave it out: "
            "device, dtype and shapes decide which kernel runs, with the same results."
        )
    q, k, v = dispatch.operands(query, key, value, result=dtypes.float_result_type)
    if any(len(x.shape) != 4 for x in (q, k, v)):
        raise ValueError(
            "`dot_product_attention` only supports 4D inputs. Received: "
            f"query.shape={tuple(q.shape)}, key.shape={tuple(k.shape)}, "
            f"value.shape={tuple(v.shape)}."
        )
    if bias is not None and mask is not None:
        raise ValueError("Only one of `bias` and `mask` can be provided. Received both.")
    q, k, v = (shaping.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))
    if q.shape[1] > k.shape[1]:
        k, v = (arrays.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    factor = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    logits = matrix_products.matmul(
        elementwise.multiply(q, float(factor)), shaping.swapaxes(k, -1, -2)
    )
    if attn_logits_soft_cap is not None:
        cap = float(attn_logits_soft_cap)
        logits = elementwise.multiply(elementwise.tanh(elementwise.divide(logits, cap)), cap)
    if bias is not None:
        logits = elementwise.add(logits, dispatch.convert(bias, logits.dtype))
    logits = masked_logits(logits, mask, is_causal)
    from kerascnn.ops import activation

    return shaping.transpose(matrix_products.matmul(activation.softmax(logits), v), (0, 2, 1, 3))


def masked_logits(logits: Any, mask: Any, is_causal: bool = False) -> Any:
    """Returns logits whose softmax is 0 where the mask is False, even if a whole row is masked.

    Args:
        logits: (..., T, S), floating.
        mask: Bool, broadcast to the same shape, or None.
        is_causal: Whether places look at earlier ones only.

    Returns:
        The shape and dtype of `logits`, with a low finite number where the mask is False.

    Example:

    >>> from kerascnn import ops
    >>> masked = ops.products.masked_logits(ops.zeros((2, 2)), None, is_causal=True)
    >>> ops.softmax(masked).numpy().tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    if is_causal:
        file_budget.check_positions(logits.shape[-2] * logits.shape[-1] // 8, "a causal mask")
        earlier = np.tri(logits.shape[-2], logits.shape[-1], dtype=bool)
        mask = earlier if mask is None else elementwise.logical_and(mask, earlier)
    if mask is None:
        return logits
    # This is low enough for exp to give 0, and finite, so that a completely masked row stays a
    # number.
    lowest = 0.7 * dtypes.limits(logits.dtype)[0]
    return elementwise.where(mask, logits, dispatch.convert(lowest, logits.dtype))

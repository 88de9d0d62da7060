"""Joining tensors and splitting them, along axes that the functions are named after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn.ops import dispatch, shaping
from kerascnn.ops.shaping import _axis
from kerascnn.symbolic.operation import op

__all__ = [
    "append",
    "array_split",
    "dsplit",
    "dstack",
    "hsplit",
    "hstack",
    "vsplit",
    "vstack",
]


@op
def append(x1: Any, x2: Any, axis: int | None = None) -> Any:
    """x2 after x1 along an axis; by default both are flattened.

    Args:
        x1: Tensor of any shape and dtype.
        x2: Tensor whose shape differs along `axis` only.
        axis: One axis, or None to flatten both.

    Returns:
        The joined tensor, in the dtype that both promote to.

    Raises:
        ValueError: for shapes that differ along another axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.append([[1, 2]], [[3, 4]]).numpy().tolist()
    [1, 2, 3, 4]
    >>> ops.append([[1, 2]], [[3, 4]], axis=0).numpy().tolist()
    [[1, 2], [3, 4]]
    """
    x1, x2 = dispatch.operands(x1, x2)
    if axis is None:
        x1, x2, axis = shaping.ravel(x1), shaping.ravel(x2), 0
    return shaping.concatenate([x1, x2], axis)


@op
def array_split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> Any:
    """As `split`, but the number of parts need not divide the axis: the first ones are longer.

    Args:
        x: Tensor of any shape and dtype.
        indices_or_sections: The number of parts, or the places where parts after the first
            begin.
        axis: The axis that is split.

    Returns:
        A list of tensors in the dtype of `x`.

    Raises:
        ValueError: where `x` has no such axis, for fewer parts than 1, and for more than 65,536
            parts of an axis with fewer places.

    Example:

    >>> from kerascnn import ops
    >>> [part.numpy().tolist() for part in ops.array_split([1, 2, 3, 4, 5], 2)]
    [[1, 2, 3], [4, 5]]
    """
    x = dispatch.convert(x)
    axis = _axis(axis, len(x.shape), "array_split")
    if isinstance(indices_or_sections, (int, np.integer)):
        indices_or_sections = int(indices_or_sections)
        if indices_or_sections < 1:
            raise ValueError(
                "array_split: there must be at least one part. Received: "
                f"indices_or_sections={indices_or_sections}"
            )
        shaping.check_parts("array_split", indices_or_sections, x.shape[axis])
        each, more = divmod(x.shape[axis], indices_or_sections)
        sizes = [each + 1] * more + [each] * (indices_or_sections - more)
        indices_or_sections = np.cumsum(sizes)[:-1].tolist()
    return shaping.split(x, indices_or_sections, axis)


@op
def hsplit(x: Any, indices_or_sections: int | Sequence[int]) -> Any:
    """`split` along the second axis, or the only one.

    Args:
        x: Tensor of at least one axis, of any dtype.
        indices_or_sections: The number of equal parts, or the places where parts after the
            first begin.

    Returns:
        A list of tensors in the dtype of `x`.

    Raises:
        ValueError: for parts that cannot be equal.

    Example:

    >>> from kerascnn import ops
    >>> [part.numpy().tolist() for part in ops.hsplit([[1, 2], [3, 4]], 2)]
    [[[1], [3]], [[2], [4]]]
    """
    x = dispatch.convert(x)
    return shaping.split(x, indices_or_sections, 0 if len(x.shape) == 1 else 1)


@op
def vsplit(x: Any, indices_or_sections: int | Sequence[int]) -> Any:
    """`split` along the first axis.

    Args:
        x: Tensor of at least one axis, of any dtype.
        indices_or_sections: The number of equal parts, or the places where parts after the
            first begin.

    Returns:
        A list of tensors in the dtype of `x`.

    Raises:
        ValueError: for parts that cannot be equal.

    Example:

    >>> from kerascnn import ops
    >>> [part.numpy().tolist() for part in ops.vsplit([[1, 2], [3, 4]], 2)]
    [[[1, 2]], [[3, 4]]]
    """
    return shaping.split(x, indices_or_sections, 0)


@op
def dsplit(x: Any, indices_or_sections: int | Sequence[int]) -> Any:
    """`split` along the third axis.

    Args:
        x: Tensor of at least three axes, of any dtype.
        indices_or_sections: The number of equal parts, or the places where parts after the
            first begin.

    Returns:
        A list of tensors in the dtype of `x`.

    Raises:
        ValueError: for parts that cannot be equal, and for fewer than 3 axes.

    Example:

    >>> from kerascnn import ops
    >>> [part.shape for part in ops.dsplit(ops.ones((2, 3, 4)), 2)]
    [(2, 3, 2), (2, 3, 2)]
    """
    return shaping.split(x, indices_or_sections, 2)


def _at_least(x: Any, rank: int) -> Any:
    if rank == 3 and len(x.shape) == 2:
        return shaping.expand_dims(x, -1)
    if rank == 3 and len(x.shape) == 1:
        return shaping.reshape(x, (1, x.shape[0], 1))
    return (
        x
        if len(x.shape) >= rank
        else shaping.reshape(x, (1,) * (rank - len(x.shape)) + tuple(x.shape))
    )


@op
def hstack(xs: Sequence[Any]) -> Any:
    """Tensors one after the other along the second axis, vectors along their only one.

    Args:
        xs: Tensors whose shapes differ along this axis only; numbers count as vectors.

    Returns:
        The joined tensor, in the dtype that all promote to.

    Raises:
        ValueError: for shapes that differ along another axis, and for no tensors.

    Example:

    >>> from kerascnn import ops
    >>> ops.hstack([[1, 2], [3]]).numpy().tolist()
    [1, 2, 3]
    """
    parts = [_at_least(x, 1) for x in dispatch.operands(*xs)]
    is_flat = bool(parts) and len(parts[0].shape) == 1
    return shaping.concatenate(parts, 0 if is_flat else 1)


@op
def vstack(xs: Sequence[Any]) -> Any:
    """Tensors one after the other along the first axis; vectors are rows.

    Args:
        xs: Tensors whose shapes differ along this axis only.

    Returns:
        The joined tensor of at least 2 axes, in the dtype that all promote to.

    Raises:
        ValueError: for shapes that differ along another axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.vstack([[1, 2], [3, 4]]).numpy().tolist()
    [[1, 2], [3, 4]]
    """
    return shaping.concatenate([_at_least(x, 2) for x in dispatch.operands(*xs)], 0)


@op
def dstack(xs: Sequence[Any]) -> Any:
    """Tensors one after the other along the third axis.

    Args:
        xs: Tensors whose shapes differ along this axis only. Matrices get a third axis at the
            end, and vectors (n,) become (1, n, 1).

    Returns:
        The joined tensor of at least 3 axes, in the dtype that all promote to.

    Raises:
        ValueError: for shapes that differ along another axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.dstack([[1, 2], [3, 4]]).numpy().tolist()
    [[[1, 3], [2, 4]]]
    """
    return shaping.concatenate([_at_least(x, 3) for x in dispatch.operands(*xs)], 2)

"""Joining tensors along an axis, and taking them apart."""

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
    "concatenate",
    "dsplit",
    "dstack",
    "hsplit",
    "hstack",
    "split",
    "stack",
    "unstack",
    "vsplit",
    "vstack",
]

_MOST_EMPTY_PARTS = 1 << 16


@op
def concatenate(xs: Sequence[Any], axis: int = 0) -> Any:
    """Joins tensors one after another along an axis.

    Args:
        xs: At least one tensor. Their shapes agree but for the size of `axis`; of several dtypes,
            all take the one that they promote to.
        axis: Along which they are joined; a negative one counts from the end.

    Returns:
        A tensor whose `axis` is as long as those of all tensors together.

    Raises:
        ValueError: for no tensors, other shapes, an axis that does not exist, or an axis of None.

    Example:

    >>> from kerascnn import ops
    >>> ops.concatenate([[1, 2], [3]], axis=0).numpy().tolist()
    [1, 2, 3]
    >>> ops.concatenate([ops.ones((2, 3)), ops.zeros((2, 5))], axis=1).shape
    (2, 8)
    """
    if axis is None:
        raise ValueError(
            "concatenate: `axis` cannot be None. Flatten the tensors first, with "
            "ops.concatenate([ops.ravel(x) for x in xs])."
        )
    xs = _some(xs, "concatenate")
    if len(xs) == 1:
        return xs[0]
    axis = _axis(axis, len(xs[0].shape), "concatenate")
    return dispatch.apply_one("concatenate", xs, {"axis": axis})


def _some(xs: Sequence[Any], name: str) -> list[Any]:
    """Returns at least one tensor, all of one dtype."""
    tensors = dispatch.operands(*xs)
    if not tensors:
        raise ValueError(f"{name}: at least one tensor is needed. Received: {xs!r}")
    return tensors


@op
def stack(x: Sequence[Any], axis: int = 0) -> Any:
    """Puts tensors side by side along a new axis.

    Args:
        x: At least one tensor, all of one shape; of several dtypes, all take the one that they
            promote to.
        axis: Where the new axis is in the result; a negative one counts from its end.

    Returns:
        A tensor with one axis more, which is as long as there are tensors.

    Raises:
        ValueError: for no tensors, several shapes, or a place that the result does not have.

    Example:

    >>> from kerascnn import ops
    >>> ops.stack([[1, 2], [3, 4]]).numpy().tolist()
    [[1, 2], [3, 4]]
    >>> ops.stack([[1, 2], [3, 4]], axis=1).numpy().tolist()
    [[1, 3], [2, 4]]
    """
    return concatenate([shaping.expand_dims(part, axis) for part in _some(x, "stack")], axis)


@op
def unstack(x: Any, num: int | None = None, axis: int = 0) -> Any:
    """Takes a tensor apart into the slices along an axis, which the slices don't have.

    Args:
        x: Tensor of any dtype with at least one axis.
        num: Has no effect: there are as many slices as the axis is long.
        axis: The axis; a negative one counts from the end.

    Returns:
        A list of `x.shape[axis]` tensors in the dtype of `x`.

    Raises:
        ValueError: for an axis that does not exist.

    Example:

    >>> from kerascnn import ops
    >>> [part.numpy().tolist() for part in ops.unstack([[1, 2], [3, 4]], axis=1)]
    [[1, 3], [2, 4]]
    """
    x = dispatch.convert(x)
    axis = _axis(axis, len(x.shape), "unstack")
    return [shaping.squeeze(_cut(x, axis, i, i + 1), axis) for i in range(x.shape[axis])]


@op
def split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> Any:
    """Splits a tensor along an axis into so many equal parts, or at the given places.

    Args:
        x: Tensor of any dtype with at least one axis.
        indices_or_sections: The number of parts; or the indices at which the second part and all
            further ones begin. These are limits of slices: negative ones count from the end, and
            beyond the end lie empty parts.
        axis: The axis; a negative one counts from the end.

    Returns:
        A list of tensors in the dtype of `x`; n indices make n + 1 of them.

    Raises:
        ValueError: for a number below 1 or one that does not divide the axis, for more than 65,536
            parts of an axis with fewer places, and an axis that does not exist.

    Example:

    >>> from kerascnn import ops
    >>> [part.numpy().tolist() for part in ops.split(ops.arange(6), 3)]
    [[0, 1], [2, 3], [4, 5]]
    >>> [part.numpy().tolist() for part in ops.split(ops.arange(6), [1, 4])]
    [[0], [1, 2, 3], [4, 5]]
    """
    x = dispatch.convert(x)
    axis = _axis(axis, len(x.shape), "split")
    length = x.shape[axis]
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1 or length % indices_or_sections:
            raise ValueError(
                f"split: axis {axis} of size {length} does not divide into "
                f"{indices_or_sections} equal parts."
            )
        check_parts("split", indices_or_sections, length)
        part = length // indices_or_sections
        cuts = [part * i for i in range(1, indices_or_sections)]
    else:
        cuts = [int(i) for i in indices_or_sections]
    bounds = zip([0, *cuts], [*cuts, length], strict=True)
    return [_cut(x, axis, start, stop) for start, stop in bounds]


def check_parts(name: str, parts: int, length: int) -> None:
    """Refuses a number of parts that has nothing to do with the size of what is split."""
    if parts > max(length, _MOST_EMPTY_PARTS):
        raise ValueError(
            f"{name}: an axis of size {length} is split into up to "
            f"{max(length, _MOST_EMPTY_PARTS)} parts. Received: indices_or_sections={parts}"
        )


def _cut(x: Any, axis: int, start: int, stop: int) -> Any:
    """Returns the part from `start` to `stop` along an axis, which Python's slices interpret."""
    rank = len(x.shape)
    places = range(x.shape[axis])[start:stop]
    if len(places) == x.shape[axis]:
        return x
    starts, sizes = [0] * rank, list(x.shape)
    starts[axis], sizes[axis] = places.start, len(places)
    attributes = {"starts": starts, "sizes": sizes, "strides": [1] * rank}
    return dispatch.apply_one("slice", [x], attributes)


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
    return concatenate([x1, x2], axis)


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
        check_parts("array_split", indices_or_sections, x.shape[axis])
        each, more = divmod(x.shape[axis], indices_or_sections)
        sizes = [each + 1] * more + [each] * (indices_or_sections - more)
        indices_or_sections = np.cumsum(sizes)[:-1].tolist()
    return split(x, indices_or_sections, axis)


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
    return split(x, indices_or_sections, 0 if len(x.shape) == 1 else 1)


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
    return split(x, indices_or_sections, 0)


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
    return split(x, indices_or_sections, 2)


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
    return concatenate(parts, 0 if is_flat else 1)


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
    return concatenate([_at_least(x, 2) for x in dispatch.operands(*xs)], 0)


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
    return concatenate([_at_least(x, 3) for x in dispatch.operands(*xs)], 2)

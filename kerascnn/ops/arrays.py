"""Making, joining, cutting and rearranging tensors: what `shaping` has not."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import _core, dtypes
from kerascnn.ops import creation, dispatch, elementwise, reduction, shaping
from kerascnn.ops.shaping import _axis
from kerascnn.symbolic.operation import op

__all__ = [
    "append",
    "array",
    "array_split",
    "copy",
    "depth_to_space",
    "diag",
    "diagflat",
    "diagonal",
    "dsplit",
    "dstack",
    "dtype",
    "empty",
    "empty_like",
    "fliplr",
    "flipud",
    "geomspace",
    "hsplit",
    "hstack",
    "identity",
    "linspace",
    "logspace",
    "meshgrid",
    "repeat",
    "roll",
    "rot90",
    "saturate_cast",
    "space_to_depth",
    "tile",
    "trace",
    "tri",
    "tril",
    "triu",
    "vander",
    "vsplit",
    "vstack",
]


def array(x: Any, dtype: Any = None) -> Any:
    """The same as `convert_to_tensor`.

    Args:
        x: Lists and numbers become `floatx` or int32; arrays keep their dtype.
        dtype: What to cast to, by default none.

    Returns:
        A tensor in the shape of `x`.

    Raises:
        TypeError: for strings, objects and other things that are no numbers.

    Example:

    >>> from kerascnn import ops
    >>> ops.array([[1, 2], [3, 4]]).numpy().tolist()
    [[1, 2], [3, 4]]
    """
    return creation.convert_to_tensor(x, dtype)


@op
def copy(x: Any) -> Any:
    """Copies the elements to memory that no variable or array shares.

    Args:
        x: Tensor of any shape and dtype.

    Returns:
        A tensor in the shape and dtype of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.copy([1.0, 2.0]).numpy().tolist()
    [1.0, 2.0]
    """
    x = dispatch.convert(x)
    return x.copy() if isinstance(x, _core.Tensor) else x  # recorded values never change


def dtype(x: Any) -> str:
    """The name of the dtype.

    Args:
        x: A tensor, array, variable or KerasTensor.

    Returns:
        A string.

    Example:

    >>> from kerascnn import ops
    >>> ops.dtype(ops.ones(2))
    'float32'
    """
    return dtypes.standardize_dtype(x.dtype)


@op
def saturate_cast(x: Any, dtype: Any) -> Any:
    """As `cast`, but numbers out of the dtype's range become its limits.

    Args:
        x: Tensor of any shape and dtype.
        dtype: The new dtype.

    Returns:
        A tensor in the shape of `x`. Where the float dtype of `x` does not hold the largest
        integer, the limit is the largest number below that it holds.

    Raises:
        ValueError: for a dtype that tensors cannot have.

    Example:

    >>> from kerascnn import ops
    >>> ops.saturate_cast([-3.0, 300.0], "uint8").numpy().tolist()
    [0, 255]
    """
    x = dispatch.convert(x)
    name = dtypes.standardize_dtype(dtype)
    if x.dtype == "bool" or name == "bool" or x.dtype == name:
        return creation.cast(x, name)
    (low, high), (own_low, own_high) = dtypes.limits(name), dtypes.limits(x.dtype)
    low, high = builtins.max(low, own_low), builtins.min(high, own_high)
    if dtypes.is_float(x.dtype) and dtypes.is_integer(name):
        # 2^31 - 1 is 2^31 in float32: the largest number that is not beyond the limit is below.
        number = dtypes.numpy_dtype(x.dtype).type
        if int(float(number(high))) > high:
            high = float(np.nextafter(number(high), number(0)))
    return creation.cast(elementwise.clip(x, low, high), name)


def empty(shape: int | Sequence[int], dtype: Any = None) -> Any:
    """Returns zeros, since tensors here never have undefined contents.

    Args:
        shape: The sizes, or the size of a vector.
        dtype: By default `floatx`.

    Returns:
        A tensor in the shape `shape`.

    Example:

    >>> from kerascnn import ops
    >>> ops.empty((2, 3)).shape
    (2, 3)
    """
    return creation.zeros(shape, dtype)


@op
def empty_like(x: Any, dtype: Any = None) -> Any:
    """Zeros in the shape of another tensor.

    Args:
        x: Tensor of any shape and dtype.
        dtype: By default that of `x`.

    Returns:
        A tensor in the shape of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.empty_like([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    return creation.zeros_like(x, dtype)


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
    """

    Args:
        matrix of ones at and below the k-th diagonal and zeros above.
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
        ValueError: where `x` has no such axis, and for fewer parts than 1.

    Example:

    >>> from kerascnn import ops
    >>> [part.numpy().tolist() for part in ops.array_split([1, 2, 3, 4, 5], 2)]
    [[1, 2, 3], [4, 5]]
    """
    x = dispatch.convert(x)
    axis = _axis(axis, len(x.shape), "array_split")
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1:
            raise ValueError(
                "array_split: there must be at least one part. Received: "
                f"indices_or_sections={indices_or_sections}"
            )
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
        ValueError: for shapes that differ along another axis.

    Example:

    >>> from kerascnn import ops
    >>> ops.hstack([[1, 2], [3]]).numpy().tolist()
    [1, 2, 3]
    """
    parts = [_at_least(x, 1) for x in dispatch.operands(*xs)]
    return shaping.concatenate(parts, 0 if len(parts[0].shape) == 1 else 1)


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


@op
def fliplr(x: Any) -> Any:
    """The second axis in reverse order.

    Args:
        x: Tensor of at least 2 axes, of any dtype.

    Returns:
        The shape and dtype of `x`.

    Raises:
        ValueError: for fewer than 2 axes.

    Example:

    >>> from kerascnn import ops
    >>> ops.fliplr([[1, 2], [3, 4]]).numpy().tolist()
    [[2, 1], [4, 3]]
    """
    x = dispatch.convert(x)
    return shaping.flip(x, _axis(1, len(x.shape), "fliplr"))


@op
def flipud(x: Any) -> Any:
    """The first axis in reverse order.

    Args:
        x: Tensor of at least one axis, of any dtype.

    Returns:
        The shape and dtype of `x`.

    Raises:
        ValueError: for a number.

    Example:

    >>> from kerascnn import ops
    >>> ops.flipud([[1, 2], [3, 4]]).numpy().tolist()
    [[3, 4], [1, 2]]
    """
    x = dispatch.convert(x)
    return shaping.flip(x, _axis(0, len(x.shape), "flipud"))


@op
def rot90(array: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Rotates k times by 90 degrees in the plane of two axes, from the first to the second.

    Args:
        array: Tensor of at least 2 axes, of any dtype.
        k: How many quarter turns, backwards if negative.
        axes: The plane; with the default, turns go against the clock.

    Returns:
        The dtype of `array`, and its shape with the two axes swapped if k is odd.

    Raises:
        ValueError: for fewer than two axes, or the same one twice.

    Example:

    >>> from kerascnn import ops
    >>> ops.rot90([[1, 2], [3, 4]]).numpy().tolist()
    [[2, 4], [1, 3]]
    """
    x = dispatch.convert(array)
    rank = len(x.shape)
    if rank < 2:
        raise ValueError(f"rot90: needs at least 2 axes. Received: shape={tuple(x.shape)}")
    if len(axes) != 2 or axes[0] % rank == axes[1] % rank:
        raise ValueError(f"rot90: axes must be two different axes. Received: axes={axes}")
    turns = k % 4
    if turns == 0:
        return x
    if turns == 2:
        return shaping.flip(x, tuple(axes))
    if turns == 1:
        return shaping.swapaxes(shaping.flip(x, axes[1]), axes[0], axes[1])
    return shaping.flip(shaping.swapaxes(x, axes[0], axes[1]), axes[1])


@op
def roll(x: Any, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Any:
    """Elements moved along axes; what leaves at one end comes in at the other.

    Args:
        x: Tensor of any shape and dtype.
        shift: How far, towards higher indices if positive; one for all axes, or one for each.
        axis: One or several axes, or None to move through the flattened tensor. The shifts
            along an axis that is named several times add up.

    Returns:
        The shape and dtype of `x`.

    Raises:
        ValueError: where `x` has no such axis, or there are not as many shifts as axes.

    Example:

    >>> from kerascnn import ops
    >>> ops.roll([1, 2, 3], 1).numpy().tolist()
    [3, 1, 2]
    >>> ops.roll([[1, 2], [3, 4]], (1, 1), axis=(0, 1)).numpy().tolist()
    [[4, 3], [2, 1]]
    """
    x = dispatch.convert(x)
    if axis is None:
        return shaping.reshape(roll(shaping.ravel(x), shift, 0), tuple(x.shape))
    places, shifts = np.atleast_1d(axis), np.atleast_1d(shift)
    if len(places) != len(shifts) and 1 not in (len(places), len(shifts)):
        raise ValueError(f"roll: {len(shifts)} shifts do not fit {len(places)} axes.")
    places, shifts = np.broadcast_arrays(places, shifts)
    for a, s in zip(places.tolist(), shifts.tolist(), strict=True):
        a = _axis(a, len(x.shape), "roll")
        length = x.shape[a]
        s = s % length if length else 0
        if s:
            before, after = shaping.split(x, [length - s], a)
            x = shaping.concatenate([after, before], a)
    return x


@op
def repeat(x: Any, repeats: int | Sequence[int], axis: int | None = None) -> Any:
    """Each element (along an axis, by default of the flattened tensor) several times in a row.

    Args:
        x: Tensor of any shape and dtype.
        repeats: How often, for all or for each; known numbers, since they make the shape.
        axis: One axis, or None to flatten `x`.

    Returns:
        The dtype and shape of `x`, the axis being as long as the repeats sum to.

    Raises:
        ValueError: where `x` has no such axis, and for repeats that are negative or do not fit
            it.

    Example:

    >>> from kerascnn import ops
    >>> ops.repeat([1, 2], 2).numpy().tolist()
    [1, 1, 2, 2]
    >>> ops.repeat([[1, 2], [3, 4]], [1, 2], axis=1).numpy().tolist()
    [[1, 2, 2], [3, 4, 4]]
    """
    x = dispatch.convert(x)
    if axis is None:
        x, axis = shaping.ravel(x), 0
    axis = _axis(axis, len(x.shape), "repeat")
    counts = np.asarray(repeats).reshape(-1)
    if len(counts) not in (1, x.shape[axis]) or (counts < 0).any():
        raise ValueError(
            f"repeat: `repeats` must be a number from 0 on, or {x.shape[axis]} of them, one for "
            f"each place along the axis. Received: repeats={repeats}"
        )
    counts = np.broadcast_to(counts, (x.shape[axis],))
    return shaping.take(x, np.repeat(np.arange(x.shape[axis]), counts).astype("int32"), axis)


@op
def tile(x: Any, repeats: int | Sequence[int]) -> Any:
    """The whole tensor several times along each axis.

    Args:
        x: Tensor of any shape and dtype.
        repeats: How often along each axis; a single number is for the last one. The shorter of
            this and the shape is filled up with ones at the front.

    Returns:
        The dtype and shape of `x`, each size times its number.

    Example:

    >>> from kerascnn import ops
    >>> ops.tile([1, 2], 2).numpy().tolist()
    [1, 2, 1, 2]
    >>> ops.tile([1, 2], (2, 1)).numpy().tolist()
    [[1, 2], [1, 2]]
    """
    x = dispatch.convert(x)
    counts = [repeats] if isinstance(repeats, int) else [int(n) for n in repeats]
    rank = builtins.max(len(counts), len(x.shape))
    counts = [1] * (rank - len(counts)) + counts
    x = shaping.reshape(x, (1,) * (rank - len(x.shape)) + tuple(x.shape))
    sizes = list(x.shape)
    pairs = [n for size in sizes for n in (1, size)]
    wide = [n for count, size in zip(counts, sizes, strict=True) for n in (count, size)]
    x = shaping.broadcast_to(shaping.reshape(x, pairs), wide)
    return shaping.reshape(x, [c * n for c, n in zip(counts, sizes, strict=True)])


@op
def meshgrid(*x: Any, indexing: str = "xy") -> Any:
    """Coordinates of all points of a grid, one tensor for each of the vectors given.

    Args:
        x: Vectors of any dtype; tensors of other shapes are flattened.
        indexing: "ij" for axes in the order of the vectors, "xy" for the first two swapped.

    Returns:
        A list of as many tensors as there are vectors, each as long along an axis as the vector
        of it.

    Raises:
        ValueError: for another indexing.

    Example:

    >>> from kerascnn import ops
    >>> x, y = ops.meshgrid([1, 2, 3], [4, 5])
    >>> x.numpy().tolist(), y.numpy().tolist()
    ([[1, 2, 3], [1, 2, 3]], [[4, 4, 4], [5, 5, 5]])
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"`indexing` must be 'xy' or 'ij'. Received: indexing={indexing!r}")
    parts = [shaping.ravel(part) for part in x]
    order = list(range(len(parts)))
    if indexing == "xy" and len(parts) > 1:
        order[:2] = [1, 0]
    shape = [parts[i].shape[0] for i in order]
    grids = []
    for i, part in enumerate(parts):
        place = order.index(i)
        view = [part.shape[0] if a == place else 1 for a in range(len(parts))]
        grids.append(shaping.broadcast_to(shaping.reshape(part, view), shape))
    return grids


def _steps(num: int, endpoint: bool) -> np.ndarray[Any, Any]:
    if num < 0:
        raise ValueError(f"`num` must not be negative. Received: num={num}")
    return np.arange(num) / builtins.max(num - 1 if endpoint else num, 1)


@op
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """`num` evenly spaced numbers from start to stop.

    Args:
        start: First number, or a tensor of them.
        stop: Last number, or a tensor whose shape broadcasts with that of `start`.
        num: How many.
        endpoint: Whether `stop` is the last of them; otherwise they end one step before it.
        retstep: Whether the step between them is returned too.
        dtype: By default the floating dtype that start and stop promote to. For integers the
            numbers are rounded down.
        axis: Where the new axis goes.

    Returns:
        A tensor of the broadcast shape with an axis of `num` more; (numbers, step) with
        `retstep`.

    Raises:
        ValueError: for a negative `num`.

    Example:

    >>> from kerascnn import ops
    >>> ops.linspace(0, 1, 3).numpy().tolist()
    [0.0, 0.5, 1.0]
    >>> ops.linspace([0, 10], [1, 20], 3, axis=1).numpy().tolist()
    [[0.0, 0.5, 1.0], [10.0, 15.0, 20.0]]
    """
    if dtype is None:
        name = dtypes.float_result_type(
            dispatch.type_of(_limit(start)), dispatch.type_of(_limit(stop))
        )
    else:
        name = dtypes.standardize_dtype(dtype)
    work = name if dtypes.is_float(name) else "float64"
    first, last = dispatch.operands(_limit(start), _limit(stop), result=work)
    share = _steps(num, endpoint).reshape(
        (-1,) + (1,) * builtins.max(len(first.shape), len(last.shape))
    )
    share = dispatch.convert(share, work)
    apart = elementwise.subtract(last, first)
    result = elementwise.add(elementwise.multiply(share, apart), first)
    if endpoint and num > 1:  # sets the end exactly, without rounding
        is_last = (np.arange(num) == num - 1).reshape(share.shape)
        result = elementwise.where(is_last, last, result)
    if not dtypes.is_float(name):
        result = elementwise.floor(result)
    result = creation.cast(shaping.moveaxis(result, 0, axis), name)
    if not retstep:
        return result
    return result, elementwise.divide(apart, builtins.max(num - 1 if endpoint else num, 1))


def _limit(x: Any) -> Any:
    """Converts a limit to what promotion accepts: lists become tensors."""
    return dispatch.convert(x) if isinstance(x, (list, tuple)) else x


@op
def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """`num` numbers from base^start to base^stop, each the same factor larger.

    Args:
        start: First exponent, or a tensor of them.
        stop: Last exponent, or a tensor whose shape broadcasts with that of `start`.
        num: How many.
        endpoint: Whether base^stop is the last of them; otherwise they end one factor before
            it.
        base: What is raised to the exponents, a number.
        dtype: By default the floating dtype that start and stop promote to.
        axis: Where the new axis goes.

    Returns:
        A tensor of the broadcast shape with an axis of `num` more.

    Raises:
        ValueError: for a negative `num`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.logspace(0, 2, 3).numpy().round(3))
    [  1.  10. 100.]
    """
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    result = elementwise.power(dispatch.convert(base, exponents.dtype), exponents)
    return result if dtype is None else creation.cast(result, dtype)


@op
def geomspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """`num` numbers from start to stop, each the same factor larger.

    Args:
        start: First number, or a tensor of them.
        stop: Last number, or a tensor whose shape broadcasts with that of `start`. Start and
            stop have one sign and are not 0, else the numbers are NaN.
        num: How many.
        endpoint: Whether `stop` is the last of them; otherwise they end one factor before it.
        dtype: By default the floating dtype that start and stop promote to.
        axis: Where the new axis goes.

    Returns:
        A tensor of the broadcast shape with an axis of `num` more.

    Raises:
        ValueError: for a negative `num`.

    Example:

    >>> from kerascnn import ops
    >>> print(ops.geomspace(1, 8, 4).numpy().round(3))
    [1. 2. 4. 8.]
    """
    first, last = dispatch.operands(_limit(start), _limit(stop), result=dtypes.float_result_type)
    sign = elementwise.sign(first)
    logs = linspace(
        elementwise.log(elementwise.multiply(first, sign)),
        elementwise.log(elementwise.multiply(last, sign)),  # NaN where it has another sign
        num,
        endpoint,
        axis=axis,
    )
    result = elementwise.multiply(elementwise.exp(logs), sign)
    return result if dtype is None else creation.cast(result, dtype)


@op
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The powers of a vector's elements as columns, by default from the highest to 1.

    Args:
        x: (n,), of any dtype but bool.
        N: Number of columns, by default n.
        increasing: Whether the powers go from 1 to the highest.

    Returns:
        (n, N), in the dtype of `x`.

    Raises:
        ValueError: for tensors that are no vectors.

    Example:

    >>> from kerascnn import ops
    >>> ops.vander([1, 2, 3]).numpy().tolist()
    [[1, 1, 1], [4, 2, 1], [9, 3, 1]]
    """
    x = dispatch.convert(x)
    if len(x.shape) != 1:
        raise ValueError(f"vander: x must have 1 axis. Received: shape={tuple(x.shape)}")
    powers = np.arange(x.shape[0] if N is None else N)
    if not len(powers):
        return creation.zeros((x.shape[0], 0), x.dtype)
    columns = [elementwise.power(x, int(n)) if n else creation.ones_like(x) for n in powers]
    return shaping.stack(columns if increasing else columns[::-1], 1)


@op
def depth_to_space(x: Any, block_size: int, data_format: str = "channels_last") -> Any:
    """Channels laid out as blocks of pixels: (n, h, w, c b^2) to (n, h b, w b, c).

    The channels of a block are those of its first row from left to right, then those of the next.

    Args:
        x: (n, h, w, c b^2), or (n, c b^2, h, w) with data_format "channels_first"; any dtype.
        block_size: b, the height and width of a block.
        data_format: "channels_last" or "channels_first".

    Returns:
        (n, h b, w b, c), or (n, c, h b, w b), in the dtype of `x`.

    Raises:
        ValueError: where the channels don't divide by block_size^2, and for other ranks.

    Source: Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient
    Sub-Pixel Convolutional Neural Network", 2016.

    Example:

    >>> from kerascnn import ops
    >>> x = ops.reshape(ops.arange(4), (1, 1, 1, 4))
    >>> ops.depth_to_space(x, 2)[0, :, :, 0].numpy().tolist()
    [[0, 1], [2, 3]]
    """
    x = _blocks(x, block_size, data_format, "depth_to_space")
    b = block_size
    if data_format == "channels_first":
        n, c, h, w = x.shape
        _divides(c, b * b, "depth_to_space", "channels")
        x = shaping.reshape(x, (n, c // (b * b), b, b, h, w))
        return shaping.reshape(
            shaping.transpose(x, (0, 1, 4, 2, 5, 3)), (n, c // (b * b), h * b, w * b)
        )
    n, h, w, c = x.shape
    _divides(c, b * b, "depth_to_space", "channels")
    x = shaping.reshape(x, (n, h, w, b, b, c // (b * b)))
    return shaping.reshape(
        shaping.transpose(x, (0, 1, 3, 2, 4, 5)), (n, h * b, w * b, c // (b * b))
    )


@op
def space_to_depth(x: Any, block_size: int, data_format: str = "channels_last") -> Any:
    """Blocks of pixels laid out as channels: (n, h, w, c) to (n, h / b, w / b, c b^2).

    It is the inverse of `depth_to_space`.

    Args:
        x: (n, h, w, c), or (n, c, h, w) with data_format "channels_first"; any dtype.
        block_size: b, the height and width of a block.
        data_format: "channels_last" or "channels_first".

    Returns:
        (n, h / b, w / b, c b^2), or (n, c b^2, h / b, w / b), in the dtype of `x`.

    Raises:
        ValueError: where height or width don't divide by block_size, and for other ranks.

    Source: Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient
    Sub-Pixel Convolutional Neural Network", 2016.

    Example:

    >>> from kerascnn import ops
    >>> ops.space_to_depth(ops.ones((1, 4, 6, 3)), 2).shape
    (1, 2, 3, 12)
    """
    x = _blocks(x, block_size, data_format, "space_to_depth")
    b = block_size
    if data_format == "channels_first":
        n, c, h, w = x.shape
        _divides(h, b, "space_to_depth", "height")
        _divides(w, b, "space_to_depth", "width")
        x = shaping.reshape(x, (n, c, h // b, b, w // b, b))
        return shaping.reshape(
            shaping.transpose(x, (0, 1, 3, 5, 2, 4)), (n, c * b * b, h // b, w // b)
        )
    n, h, w, c = x.shape
    _divides(h, b, "space_to_depth", "height")
    _divides(w, b, "space_to_depth", "width")
    x = shaping.reshape(x, (n, h // b, b, w // b, b, c))
    return shaping.reshape(shaping.transpose(x, (0, 1, 3, 2, 4, 5)), (n, h // b, w // b, c * b * b))


def _blocks(x: Any, block_size: int, data_format: str, name: str) -> Any:
    x = dispatch.convert(x)
    if block_size < 1 or data_format not in ("channels_last", "channels_first"):
        raise ValueError(
            f"{name}: block_size must be positive and data_format 'channels_last' or "
            f"'channels_first'. Received: block_size={block_size}, data_format={data_format!r}"
        )
    if len(x.shape) != 4:
        raise ValueError(f"{name}: images have 4 axes. Received: shape={tuple(x.shape)}")
    return x


def _divides(size: int, by: int, name: str, what: str) -> None:
    if size % by:
        raise ValueError(f"{name}: the {what} must divide by {by}. Received: {size}")

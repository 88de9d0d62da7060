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
    """The same as `convert_to_tensor`."""
    return creation.convert_to_tensor(x, dtype)


@op
def copy(x: Any) -> Any:
    """Copies the elements to memory that no variable or array shares."""
    x = dispatch.convert(x)
    return x.copy() if isinstance(x, _core.Tensor) else x  # recorded values never change


def dtype(x: Any) -> str:
    """The name of the dtype."""
    return dtypes.standardize_dtype(x.dtype)


@op
def saturate_cast(x: Any, dtype: Any) -> Any:
    """As `cast`, but numbers out of the dtype's range become its limits.

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
    return creation.cast(
        elementwise.clip(x, builtins.max(low, own_low), builtins.min(high, own_high)), name
    )


def empty(shape: int | Sequence[int], dtype: Any = None) -> Any:
    """Returns zeros, since tensors here never have undefined contents."""
    return creation.zeros(shape, dtype)


@op
def empty_like(x: Any, dtype: Any = None) -> Any:
    """Zeros in the shape (and by default the dtype) of `x`."""
    return creation.zeros_like(x, dtype)


def identity(n: int, dtype: Any = None) -> Any:
    """The (n, n) matrix with ones on its diagonal."""
    return creation.eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """An (N, M) matrix of ones at and below the k-th diagonal and zeros above."""
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
    """The matrices of the last two axes with zeros above the k-th diagonal."""
    return _triangle(x, k, "tril", True)


@op
def triu(x: Any, k: int = 0) -> Any:
    """The matrices of the last two axes with zeros below the k-th diagonal."""
    return _triangle(x, k, "triu", False)


@op
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonals of the matrices that two axes make, along a new last axis.

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
    """The sum along the diagonal."""
    return reduction.sum(diagonal(x, offset, axis1, axis2), -1)


@op
def diag(x: Any, k: int = 0) -> Any:
    """The k-th diagonal of a matrix, or the matrix with the vector x on its k-th diagonal."""
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
    """The matrix with all elements of x on its k-th diagonal."""
    return diag(shaping.ravel(x), k)


@op
def append(x1: Any, x2: Any, axis: int | None = None) -> Any:
    """x2 after x1 along an axis; by default both are flattened."""
    x1, x2 = dispatch.operands(x1, x2)
    if axis is None:
        x1, x2, axis = shaping.ravel(x1), shaping.ravel(x2), 0
    return shaping.concatenate([x1, x2], axis)


@op
def array_split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> Any:
    """As `split`, but the number of parts need not divide the axis: the first ones are longer."""
    x = dispatch.convert(x)
    axis = _axis(axis, len(x.shape), "array_split")
    if isinstance(indices_or_sections, int):
        each, more = divmod(x.shape[axis], indices_or_sections)
        sizes = [each + 1] * more + [each] * (indices_or_sections - more)
        indices_or_sections = np.cumsum(sizes)[:-1].tolist()
    return shaping.split(x, indices_or_sections, axis)


@op
def hsplit(x: Any, indices_or_sections: int | Sequence[int]) -> Any:
    """`split` along the second axis, or the only one."""
    x = dispatch.convert(x)
    return shaping.split(x, indices_or_sections, 0 if len(x.shape) == 1 else 1)


@op
def vsplit(x: Any, indices_or_sections: int | Sequence[int]) -> Any:
    """`split` along the first axis."""
    return shaping.split(x, indices_or_sections, 0)


@op
def dsplit(x: Any, indices_or_sections: int | Sequence[int]) -> Any:
    """`split` along the third axis."""
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
    """One after the other along the second axis, vectors along their only one."""
    parts = [_at_least(x, 1) for x in dispatch.operands(*xs)]
    return shaping.concatenate(parts, 0 if len(parts[0].shape) == 1 else 1)


@op
def vstack(xs: Sequence[Any]) -> Any:
    """One after the other along the first axis; vectors are rows."""
    return shaping.concatenate([_at_least(x, 2) for x in dispatch.operands(*xs)], 0)


@op
def dstack(xs: Sequence[Any]) -> Any:
    """One after the other along the third axis."""
    return shaping.concatenate([_at_least(x, 3) for x in dispatch.operands(*xs)], 2)


@op
def fliplr(x: Any) -> Any:
    """The second axis in reverse order."""
    return shaping.flip(x, 1)


@op
def flipud(x: Any) -> Any:
    """The first axis in reverse order."""
    return shaping.flip(x, 0)


@op
def rot90(array: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Rotates k times by 90 degrees in the plane of two axes, from the first to the second.

    Raises:
        ValueError: for fewer than two axes, or the same one twice.
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

    Example:

    >>> from kerascnn import ops
    >>> ops.roll([1, 2, 3], 1).numpy().tolist()
    [3, 1, 2]
    """
    x = dispatch.convert(x)
    if axis is None:
        return shaping.reshape(roll(shaping.ravel(x), shift, 0), tuple(x.shape))
    axes = [axis] if isinstance(axis, int) else list(axis)
    shifts = [shift] * len(axes) if isinstance(shift, int) else list(shift)
    for a, s in zip(axes, shifts, strict=True):
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
        x: Input.
        repeats: How often, for all or for each; known numbers, since they make the shape.
        axis: By default the tensor is flattened.

    Example:

    >>> from kerascnn import ops
    >>> ops.repeat([1, 2], 2).numpy().tolist()
    [1, 1, 2, 2]
    """
    x = dispatch.convert(x)
    if axis is None:
        x, axis = shaping.ravel(x), 0
    axis = _axis(axis, len(x.shape), "repeat")
    counts = np.broadcast_to(np.asarray(repeats).reshape(-1), (x.shape[axis],))
    return shaping.take(x, np.repeat(np.arange(x.shape[axis]), counts).astype("int32"), axis)


@op
def tile(x: Any, repeats: int | Sequence[int]) -> Any:
    """The whole tensor several times along each axis."""
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
        x: Vectors.
        indexing: "xy" for (rows by the second, columns by the first), "ij" for their order.
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
        start: First number(s).
        stop: Last number(s).
        num: How many.
        endpoint: Whether `stop` is the last of them.
        retstep: Whether the step between them is returned too.
        dtype: By default a floating type.
        axis: Where the new axis goes.

    Example:

    >>> from kerascnn import ops
    >>> ops.linspace(0, 1, 3).numpy().tolist()
    [0.0, 0.5, 1.0]
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
    """`num` numbers from base^start to base^stop, each the same factor larger."""
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
    """`num` numbers from start to stop, each the same factor larger."""
    first, last = dispatch.operands(_limit(start), _limit(stop), result=dtypes.float_result_type)
    logs = linspace(
        elementwise.log(elementwise.absolute(first)),
        elementwise.log(elementwise.absolute(last)),
        num,
        endpoint,
        axis=axis,
    )
    result = elementwise.multiply(elementwise.exp(logs), elementwise.sign(first))
    return result if dtype is None else creation.cast(result, dtype)


@op
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The powers of a vector's elements as columns, by default from the highest to 1."""
    x = dispatch.convert(x)
    if len(x.shape) != 1:
        raise ValueError(f"vander: x must have 1 axis. Received: shape={tuple(x.shape)}")
    powers = np.arange(x.shape[0] if N is None else N)
    columns = [elementwise.power(x, int(n)) if n else creation.ones_like(x) for n in powers]
    return shaping.stack(columns if increasing else columns[::-1], 1)


@op
def depth_to_space(x: Any, block_size: int, data_format: str = "channels_last") -> Any:
    """Channels laid out as blocks of pixels: (n, h, w, c b^2) to (n, h b, w b, c).

    Raises:
        ValueError: where the channels don't divide by block_size^2.
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

    Raises:
        ValueError: where height or width don't divide by block_size.
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

"""Copying, casting, repeating, turning and rolling tensors, and moving depth to space."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import _core, dtypes
from kerascnn.ops import creation, dispatch, elementwise, joining, shaping
from kerascnn.ops.shaping import _axis
from kerascnn.symbolic.operation import op

_LONGEST = 1 << 60

__all__ = [
    "array",
    "copy",
    "depth_to_space",
    "dtype",
    "empty",
    "empty_like",
    "fliplr",
    "flipud",
    "repeat",
    "roll",
    "rot90",
    "saturate_cast",
    "space_to_depth",
    "tile",
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
        TypeError: for shifts and axes that are no whole numbers.
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
    if places.dtype.kind not in "biu" or shifts.dtype.kind not in "biu":
        raise TypeError(
            f"roll: shift and axis are whole numbers. Received: shift={shift!r}, axis={axis!r}"
        )
    if len(places) != len(shifts) and 1 not in (len(places), len(shifts)):
        raise ValueError(f"roll: {len(shifts)} shifts do not fit {len(places)} axes.")
    places, shifts = np.broadcast_arrays(places, shifts)
    for a, s in zip(places.tolist(), shifts.tolist(), strict=True):
        a = _axis(a, len(x.shape), "roll")
        length = x.shape[a]
        s = s % length if length else 0
        if s:
            before, after = joining.split(x, [length - s], a)
            x = joining.concatenate([after, before], a)
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
    if sum(counts.tolist()) > _LONGEST:  # NumPy's own sum overflows, and then it writes anywhere
        raise ValueError(
            f"repeat: an axis has up to {_LONGEST} places. Received: repeats={repeats} for "
            f"{x.shape[axis]} places"
        )
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
    counts = [int(n) for n in np.atleast_1d(repeats)]
    rank = builtins.max(len(counts), len(x.shape))
    counts = [1] * (rank - len(counts)) + counts
    x = shaping.reshape(x, (1,) * (rank - len(x.shape)) + tuple(x.shape))
    sizes = list(x.shape)
    pairs = [n for size in sizes for n in (1, size)]
    wide = [n for count, size in zip(counts, sizes, strict=True) for n in (count, size)]
    x = shaping.broadcast_to(shaping.reshape(x, pairs), wide)
    return shaping.reshape(x, [c * n for c, n in zip(counts, sizes, strict=True)])


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

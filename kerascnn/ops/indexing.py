"""x[...]: the meaning of NumPy's indices for tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kerascnn.ops import dispatch, elementwise, host, shaping
from kerascnn.symbolic.operation import op

__all__ = ["boolean_mask", "get_item"]

_INTEGERS = ("int8", "uint8", "int16", "int32", "int64")


@op
def boolean_mask(x: Any, mask: Any, axis: int = 0) -> Any:
    """The elements (or rows, ...) of `x` where `mask` is True.

    How many there are depends on values, so it is computed at once only. In a compiled step keep
    the shape: `ops.where(mask, x, 0)`.

    Args:
        x: Tensor of any dtype with at least one axis.
        mask: Bools, in the shape of as many axes of `x` from `axis` on.
        axis: Where the mask's axes begin.

    Returns:
        What was picked, along one axis in place of the mask's axes, in the dtype of `x`.

    Raises:
        ValueError: for a mask that a step or a model computes.
        TypeError: for a mask that is not of bools.
        IndexError: for a mask of another shape.

    Source: https://www.tensorflow.org/api_docs/python/tf/boolean_mask

    Example:

    >>> from kerascnn import ops
    >>> ops.boolean_mask([[1, 2], [3, 4], [5, 6]], [True, False, True]).numpy().tolist()
    [[1, 2], [5, 6]]
    """
    x = dispatch.convert(x)
    axis = shaping._axis(axis, len(x.shape), "boolean_mask")
    index = _standardized(mask)
    if not _is_mask(index):
        raise TypeError("boolean_mask: the mask must be of bools; compare first, as in x > 0.")
    return get_item(x, (slice(None),) * axis + (index,))


@op
def get_item(x: Any, key: Any) -> Any:
    """x[key]: integers, slices, None, ..., arrays of integers and masks of bools, as in NumPy.

    Args:
        x: Tensor of any shape and dtype.
        key: One index or a tuple of them. Arrays of integers are broadcast against one another; a
            mask stands for the places where it is True. In a compiled step, arrays of integers may
            be values of the step; masks must be known.

    Returns:
        A tensor in the dtype of `x`. Integers remove their axes, slices shorten theirs, and None
        puts in axes of size 1. The axes of arrays are where the arrays are, or come first where
        something else is between them.

    Raises:
        IndexError: for too many indices, one out of range that is known here, a mask of another
            shape, and arrays of something else than integers or bools.
        ValueError: for a mask that a step or a model computes.

    Source: https://numpy.org/doc/stable/user/basics.indexing.html

    Example:

    >>> from kerascnn import ops
    >>> x = ops.reshape(ops.arange(6), (3, 2))
    >>> x[1:, 0].numpy().tolist()
    [2, 4]
    >>> x[x > 2].numpy().tolist()
    [3, 4, 5]
    >>> x[[0, 2], [1, 0]].numpy().tolist()
    [1, 4]
    """
    x = whole = dispatch.convert(x)
    indices = [_standardized(k) for k in (key if isinstance(key, tuple) else (key,))]
    entries = _entries(indices, tuple(x.shape))
    if any(isinstance(k, _Array) for k in entries):
        # NumPy treats an integer next to arrays as an array of one element.
        entries = [_Array(np.array(k)) if isinstance(k, int) else k for k in entries]
    numbers = [i for i, k in enumerate(entries) if isinstance(k, _Array)]
    is_one_run = not numbers or numbers[-1] - numbers[0] == len(numbers) - 1
    entries = [k for k in entries if k is not Ellipsis]
    x = _slice(x, entries)
    kept = [k for k in entries if not isinstance(k, int)]
    arrays = {axis: k.places for axis, k in enumerate(kept) if isinstance(k, _Array)}
    if len(arrays) > 1:
        return _take_together(x, arrays, is_one_run)
    for axis, places in arrays.items():
        x = shaping.take(x, places, axis)
    if x is whole:
        # x[:] is another tensor: a mask that x has is not its mask.
        x = dispatch.apply_one("reshape", [x], {"shape": list(x.shape)})
    return x


class _Array(NamedTuple):
    """Places along an axis of the tensor, or along a new one; none is negative."""

    places: Any
    is_new_axis: bool = False


def _is_mask(index: Any) -> bool:
    return isinstance(index, np.ndarray) and index.dtype == bool


def _standardized(index: Any) -> Any:
    """Converts an index to None, `...`, a slice, an int, int64 or bool arrays, or a value."""
    if index is None or index is Ellipsis or isinstance(index, slice):
        return index
    if isinstance(index, (int, np.integer)) and not isinstance(index, bool):
        return int(index)
    if not host.is_known(index):
        return _unknown(dispatch.convert(index))
    array = np.asarray(index)
    if array.size == 0 and isinstance(index, (list, tuple)):
        array = array.astype("int64")
    if array.dtype != bool and array.dtype.kind not in "iu":
        raise IndexError(
            "arrays that are indices must be of integers or bools. Received an array of "
            f"{array.dtype}"
        )
    return array if array.dtype == bool else array.astype("int64")


def _unknown(index: Any) -> Any:
    if index.dtype == "bool":
        raise ValueError(
            "x[mask]: how many elements a mask picks depends on its values, which are not known "
            "in a compiled step or a functional model. Use ops.where(mask, x, 0), which keeps the "
            "shape, or pick before the step, with ops.boolean_mask(x, mask)."
        )
    if index.dtype not in _INTEGERS:
        raise IndexError(
            "arrays that are indices must be of integers or bools. Received an array of "
            f"{index.dtype}"
        )
    return index


def _entries(indices: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """None for each new axis; for each axis of the tensor an int, an _Array or a range.

    A `...` of no axis stays: arrays on both of its sides do not follow one another.
    """

    def num_axes(k: Any) -> int:
        return 0 if k is None or k is Ellipsis else k.ndim if _is_mask(k) else 1

    used = sum(map(num_axes, indices))
    if used > len(shape):
        raise IndexError(f"{used} indices for a tensor of {len(shape)} axes, of shape {shape}")
    dots = [i for i, k in enumerate(indices) if k is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index has one '...' at most.")
    where = dots[0] if dots else len(indices)
    rest: list[Any] = [slice(None)] * (len(shape) - used)
    if dots and not rest:
        rest = [Ellipsis]
    entries: list[Any] = []
    axis = 0
    for k in (*indices[:where], *rest, *indices[where + 1 :]):
        if k is None or k is Ellipsis:
            entries.append(k)
        elif isinstance(k, slice):
            entries.append(range(*k.indices(shape[axis])))
        elif _is_mask(k):
            entries.extend(_places_of(k, shape, axis))
        else:
            entries.append(_counted_from_the_start(k, shape, axis))
        axis += num_axes(k)
    return entries


def _places_of(mask: np.ndarray[Any, Any], shape: tuple[int, ...], axis: int) -> list[_Array]:
    """Converts a mask to arrays of places, one for each of its axes."""
    if mask.ndim == 0:
        return [_Array(np.zeros(int(mask), "int64"), is_new_axis=True)]
    if mask.shape != shape[axis : axis + mask.ndim]:
        raise IndexError(
            f"a mask of shape {mask.shape} does not fit a tensor of shape {shape} from axis "
            f"{axis} on."
        )
    return [_Array(places) for places in np.nonzero(mask)]


def _counted_from_the_start(index: Any, shape: tuple[int, ...], axis: int) -> Any:
    length = shape[axis]
    if dispatch.is_tensor(index):
        index = dispatch.convert(index, "int64" if index.dtype == "int64" else "int32")
        return _Array(elementwise.where(index < 0, index + length, index))
    values = np.asarray(index)
    wrong = values[(values < -length) | (values >= length)]
    if wrong.size:
        raise IndexError(
            f"index {wrong.flat[0]} is out of range for axis {axis} of a tensor of shape {shape}"
        )
    return index % length if isinstance(index, int) else _Array(values % max(length, 1))


def _slice(x: Any, entries: Sequence[Any]) -> Any:
    """Cuts out the ranges and the places of ints, whose axes go, and adds the new axes."""
    starts, sizes, strides, shape = [], [], [], []
    backwards = {}
    lengths = iter(x.shape)
    for k in entries:
        if k is None or (isinstance(k, _Array) and k.is_new_axis):
            shape.append(1)
            continue
        start, size, stride = 0, next(lengths), 1
        if isinstance(k, int):
            start, size = k, 1
        elif isinstance(k, range):
            if k.step < 0:
                backwards[len(shape)] = np.array(k, "int32")
            else:
                start, size, stride = k.start, len(k), k.step
        if not isinstance(k, int):
            shape.append(size)
        starts.append(start)
        sizes.append(size)
        strides.append(stride)
    if sizes != list(x.shape) or any(stride != 1 for stride in strides):
        attributes = {"starts": starts, "sizes": sizes, "strides": strides}
        x = dispatch.apply_one("slice", [x], attributes)
    if shape != list(x.shape):
        x = dispatch.apply_one("reshape", [x], {"shape": shape})
    for axis, places in backwards.items():
        x = shaping.take(x, places, axis)
    return x


def _take_together(x: Any, arrays: dict[int, Any], is_one_run: bool) -> Any:
    """The elements at the places that arrays name together, broadcast against one another.

    Their axes are where those of the arrays were if these followed one another, else they come
    first.
    """
    axes = list(arrays)
    others = [axis for axis in range(len(x.shape)) if axis not in arrays]
    lengths = [x.shape[axis] for axis in axes]
    places: Any = None
    for length, part in zip(lengths, arrays.values(), strict=True):
        places = part if places is None else places * length + part
    x = shaping.transpose(x, [*axes, *others])
    x = shaping.reshape(x, (math.prod(lengths), *x.shape[len(axes) :]))
    x = shaping.take(x, places, 0)
    first = axes[0] if is_one_run else 0
    rank = len(places.shape)
    order = [*range(rank, rank + first), *range(rank), *range(rank + first, len(x.shape))]
    return shaping.transpose(x, order)

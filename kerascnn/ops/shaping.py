"""Shapes, axes, borders and picking elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.ops import dispatch
from kerascnn.symbolic.operation import op

__all__ = [
    "broadcast_to",
    "expand_dims",
    "flip",
    "moveaxis",
    "one_hot",
    "pad",
    "ravel",
    "reshape",
    "squeeze",
    "swapaxes",
    "take",
    "transpose",
]

_NO_MASK = (
    "take: indices are numbers, and a mask of bools is none. Use x[mask] or "
    "ops.boolean_mask(x, mask) for the elements where it is True, or cast it to int32 if 0 and 1 "
    "are meant."
)
_REPEATING_PADS = ("reflect", "symmetric", "edge", "wrap")


def _axis(axis: int, rank: int, name: str) -> int:
    if not -rank <= axis < rank:
        raise ValueError(f"{name}: axis {axis} does not exist in a tensor of {rank} axes.")
    return axis % rank


@op
def reshape(x: Any, newshape: int | Sequence[int]) -> Any:
    """The same elements in another shape, in the same order (the last axis runs fastest).

    Args:
        x: Tensor of any shape and dtype.
        newshape: Sizes of the new axes, or one integer for a vector. One of them may be -1: it
            follows from the number of elements, unless another size is 0.

    Returns:
        A tensor of shape `newshape` and the dtype of `x`.

    Raises:
        ValueError: where the number of elements differs, or the size for -1 does not follow.

    Example:

    >>> from kerascnn import ops
    >>> ops.reshape(ops.arange(6), (2, -1)).numpy().tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    x = dispatch.convert(x)
    sizes = dispatch.whole_sizes("reshape", newshape)
    total = int(np.prod(x.shape, dtype=np.int64))
    if sizes.count(-1) == 1:
        known = int(np.prod([n for n in sizes if n != -1], dtype=np.int64))
        if known and total % known == 0:
            sizes[sizes.index(-1)] = total // known
    if any(n < 0 for n in sizes) or int(np.prod(sizes, dtype=np.int64)) != total:
        raise ValueError(
            f"reshape: a tensor of shape {tuple(x.shape)} has {total} elements; they cannot be "
            f"arranged as {newshape if isinstance(newshape, int) else tuple(newshape)}."
        )
    return dispatch.apply_one("reshape", [x], {"shape": sizes})


@op
def transpose(x: Any, axes: Sequence[int] | None = None) -> Any:
    """The axes in another order, by default the reverse.

    Args:
        x: Tensor of any shape and dtype.
        axes: For each axis of the result the axis of `x` that it is; negative ones count from the
            end.

    Returns:
        A tensor whose axis i has the size `x.shape[axes[i]]`, in the dtype of `x`.

    Raises:
        ValueError: unless `axes` names each axis of `x` once.

    Example:

    >>> from kerascnn import ops
    >>> ops.transpose([[1, 2, 3], [4, 5, 6]]).numpy().tolist()
    [[1, 4], [2, 5], [3, 6]]
    >>> ops.transpose(ops.ones((2, 3, 5)), (0, 2, 1)).shape
    (2, 5, 3)
    """
    x = dispatch.convert(x)
    rank = len(x.shape)
    order = list(range(rank))[::-1]
    if axes is not None:
        order = [a % rank if -rank <= a < rank else a for a in axes]
    if sorted(order) != list(range(rank)):
        raise ValueError(
            f"transpose: axes must name each of the {rank} axes once. Received: axes={axes}"
        )
    return dispatch.apply_one("transpose", [x], {"permutation": order})


@op
def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """Exchanges two axes.

    Args:
        x: Tensor of any shape and dtype.
        axis1: An axis; a negative one counts from the end.
        axis2: The axis that it changes places with.

    Returns:
        A tensor in the dtype of `x`, in whose shape the two sizes are exchanged.

    Raises:
        ValueError: for an axis that does not exist.

    Example:

    >>> from kerascnn import ops
    >>> ops.swapaxes(ops.ones((2, 3, 5)), 0, -1).shape
    (5, 3, 2)
    """
    x = dispatch.convert(x)
    rank = len(x.shape)
    order = list(range(rank))
    first, second = _axis(axis1, rank, "swapaxes"), _axis(axis2, rank, "swapaxes")
    order[first], order[second] = second, first
    return transpose(x, order)


@op
def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    """Moves axes to other places; the rest keeps its order.

    Args:
        x: Tensor of any shape and dtype.
        source: The axis that moves, or several of them; negative ones count from the end.
        destination: Where each of them is in the result.

    Returns:
        A tensor in the dtype of `x`, with the sizes in the new order.

    Raises:
        ValueError: for an axis that does not exist or is named twice, or another number of
            destinations than of sources.

    Example:

    >>> from kerascnn import ops
    >>> ops.moveaxis(ops.ones((2, 3, 5)), 0, -1).shape
    (3, 5, 2)
    >>> ops.moveaxis(ops.ones((2, 3, 5)), [0, 1], [1, 2]).shape
    (5, 2, 3)
    """
    x = dispatch.convert(x)
    rank = len(x.shape)
    sources, targets = (
        [_axis(a, rank, "moveaxis") for a in ([axes] if isinstance(axes, int) else axes)]
        for axes in (source, destination)
    )
    if not len(sources) == len(targets) == len(set(sources)) == len(set(targets)):
        raise ValueError(
            "moveaxis: each axis moves to one place of its own. Received: "
            f"source={source}, destination={destination}"
        )
    order = [a for a in range(rank) if a not in sources]
    for target, moved in sorted(zip(targets, sources, strict=True)):
        order.insert(target, moved)
    return transpose(x, order)


@op
def expand_dims(x: Any, axis: int | Sequence[int]) -> Any:
    """Puts in a new axis of size 1 at each place of `axis`.

    Args:
        x: Tensor of any shape and dtype.
        axis: Where the new axis is in the result, or several places; negative ones count from the
            end of the result.

    Returns:
        A tensor in the dtype of `x`, with as many axes more as `axis` names.

    Raises:
        ValueError: for a place that the result does not have, or that is named twice.

    Example:

    >>> from kerascnn import ops
    >>> ops.expand_dims(ops.ones((2, 3)), 0).shape
    (1, 2, 3)
    >>> ops.expand_dims(ops.ones((2, 3)), (0, -1)).shape
    (1, 2, 3, 1)
    """
    x = dispatch.convert(x)
    places = [axis] if isinstance(axis, int) else list(axis)
    rank = len(x.shape) + len(places)
    taken = {_axis(place, rank, "expand_dims") for place in places}
    if len(taken) != len(places):
        raise ValueError(f"expand_dims: each place is named once. Received: axis={axis}")
    sizes = iter(x.shape)
    return reshape(x, [1 if i in taken else next(sizes) for i in range(rank)])


@op
def squeeze(x: Any, axis: int | Sequence[int] | None = None) -> Any:
    """Removes axes of size 1: those named, by default all of them.

    Args:
        x: Tensor of any shape and dtype.
        axis: One axis or several; negative ones count from the end.

    Returns:
        A tensor in the dtype of `x` without these axes.

    Raises:
        ValueError: for an axis that does not exist or has another size.

    Example:

    >>> from kerascnn import ops
    >>> ops.squeeze(ops.ones((1, 3, 1))).shape
    (3,)
    >>> ops.squeeze(ops.ones((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    x = dispatch.convert(x)
    rank = len(x.shape)
    if axis is None:
        gone = {i for i, n in enumerate(x.shape) if n == 1}
    else:
        gone = {_axis(a, rank, "squeeze") for a in ([axis] if isinstance(axis, int) else axis)}
    for i in gone:
        if x.shape[i] != 1:
            raise ValueError(
                f"squeeze: axis {i} of a tensor of shape {tuple(x.shape)} has size {x.shape[i]}; "
                "only axes of size 1 can be left out."
            )
    return reshape(x, [n for i, n in enumerate(x.shape) if i not in gone])


@op
def ravel(x: Any) -> Any:
    """All elements in one axis, the last axis running fastest.

    Args:
        x: Tensor of any shape and dtype. A number becomes a vector of one element.

    Returns:
        A vector in the dtype of `x`.

    Example:

    >>> from kerascnn import ops
    >>> ops.ravel([[1, 2], [3, 4]]).numpy().tolist()
    [1, 2, 3, 4]
    """
    return reshape(x, -1)


@op
def broadcast_to(x: Any, shape: Sequence[int]) -> Any:
    """Repeats along axes of size 1 (and new leading ones) up to `shape`.

    Args:
        x: Tensor of any dtype. Counted from the last one on, each of its axes has the size in
            `shape` or 1.
        shape: Shape of the result.

    Returns:
        A tensor of shape `shape` and the dtype of `x`.

    Raises:
        ValueError: for a shape that `x` cannot be repeated to.

    Source: https://numpy.org/doc/stable/user/basics.broadcasting.html

    Example:

    >>> from kerascnn import ops
    >>> ops.broadcast_to([[1], [2]], (2, 3)).numpy().tolist()
    [[1, 1, 1], [2, 2, 2]]
    """
    return dispatch.apply_one("broadcast_to", [dispatch.convert(x)], {"shape": list(shape)})


@op
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = None) -> Any:
    """A border around a tensor.

    Args:
        x: Tensor of any shape and dtype.
        pad_width: ((before, after), ...) for each axis, or one pair or number for all; none of them
            is negative.
        mode: What the border holds: "constant", "reflect" (the mirror image without the outermost
            elements), "symmetric" (with them), "edge" (the outermost elements) or "wrap" (what is
            at the other end).
        constant_values: The number that a constant border holds, by default 0.

    Returns:
        A tensor in the dtype of `x`, each of whose axes is longer by its two widths.

    Raises:
        ValueError: for another mode, values for another mode than "constant", negative widths, or
            an axis without elements that a border could repeat.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.pad.html

    Example:

    >>> from kerascnn import ops
    >>> ops.pad([[1, 2]], ((0, 1), (1, 0))).numpy().tolist()
    [[0, 1, 2], [0, 0, 0]]
    >>> ops.pad([1, 2, 3], 2, "reflect").numpy().tolist()
    [3, 2, 1, 2, 3, 2, 1]
    """
    x = dispatch.convert(x)
    widths = np.broadcast_to(np.asarray(pad_width, np.int64), (len(x.shape), 2)).tolist()
    if mode not in ("constant", *_REPEATING_PADS):
        raise ValueError(
            f"pad: `mode` must be 'constant' or one of {_REPEATING_PADS}. Received: mode={mode!r}"
        )
    if mode != "constant":
        if constant_values is not None:
            raise ValueError(
                "pad: `constant_values` belong to mode='constant'. Received: "
                f"mode={mode!r}, constant_values={constant_values!r}"
            )
        return _pad_by_repeating(x, widths, mode)
    shape = [n + before + after for n, (before, after) in zip(x.shape, widths, strict=True)]
    place = {
        "input_shape": shape,
        "starts": [before for before, _ in widths],
        "sizes": list(x.shape),
        "strides": [1] * len(shape),
    }
    padded = dispatch.apply_one("slice_grad", [x], place)
    if not constant_values:
        return padded
    from kerascnn.ops import creation, elementwise

    inside = dispatch.apply_one("slice_grad", [creation.ones_like(x)], place)
    return elementwise.where(inside, padded, dispatch.convert(constant_values, x.dtype))


def _pad_by_repeating(x: Any, widths: Sequence[Sequence[int]], mode: Any) -> Any:
    for axis, width in enumerate(widths):
        if not any(width):
            continue
        if x.shape[axis] == 0:
            raise ValueError(f"pad: axis {axis} has no element that a border could repeat.")
        places = np.pad(np.arange(x.shape[axis], dtype="int32"), width, mode)
        x = take(x, places, axis)
    return x


@op
def flip(x: Any, axis: int | Sequence[int] | None = None) -> Any:
    """The elements in reverse order along axes, by default along all.

    Args:
        x: Tensor of any shape and dtype.
        axis: One axis or several; negative ones count from the end.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        ValueError: for an axis that does not exist.

    Example:

    >>> from kerascnn import ops
    >>> ops.flip([[1, 2], [3, 4]]).numpy().tolist()
    [[4, 3], [2, 1]]
    >>> ops.flip([[1, 2], [3, 4]], axis=1).numpy().tolist()
    [[2, 1], [4, 3]]
    """
    x = dispatch.convert(x)
    rank = len(x.shape)
    axes = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
    chosen = [_axis(a, rank, "flip") for a in axes]
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"flip: an axis is named twice. Received: axis={axis}")
    for a in chosen:
        x = take(x, np.arange(x.shape[a])[::-1].astype("int32"), a)
    return x


@op
def take(x: Any, indices: Any, axis: int | None = None) -> Any:
    """The elements at `indices` along an axis (by default, of the flattened tensor).

    Args:
        x: Tensor of any shape and dtype.
        indices: Integers of any shape; fractions are cut off floating numbers. Negative ones count
            from the end. In a compiled step, where nothing can be raised for its values, those out
            of range are the nearest in range.
        axis: The axis; a negative one counts from the end.

    Returns:
        (*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]) in the dtype of `x`.

    Raises:
        IndexError: for an index out of range that is known here.
        TypeError: for a mask, which is no index: `x[mask]` and `boolean_mask` take one.
        ValueError: for an axis that does not exist.

    Example:

    >>> from kerascnn import ops
    >>> ops.take([10, 20, 30], [[0, -1]]).numpy().tolist()
    [[10, 30]]
    >>> ops.take([[1, 2, 3], [4, 5, 6]], [2, 0], axis=1).numpy().tolist()
    [[3, 1], [6, 4]]
    """
    x = dispatch.convert(x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    axis = _axis(axis, len(x.shape), "take")
    if dispatch.is_tensor(indices) and indices.dtype == "bool":
        raise TypeError(_NO_MASK)
    if not dispatch.is_tensor(indices) or not _is_symbolic(indices):
        host = np.asarray(indices)
        if host.dtype == bool:
            raise TypeError(_NO_MASK)
        length = x.shape[axis]
        whole = np.trunc(host) if dtypes.is_float(host.dtype.name) else host
        if host.size and not (whole.min() >= -length and whole.max() < length):  # nor NaN
            raise IndexError(
                f"take: indices must be from {-length} to {length - 1} along axis {axis} of a "
                f"tensor of shape {tuple(x.shape)}. Received: from {host.min()} to {host.max()}"
            )
        whole = whole.astype("int64")  # in which no length overflows
        return gather(x, np.where(whole < 0, whole + length, whole).astype("int32"), axis)
    if dtypes.is_float(indices.dtype):
        indices = dispatch.convert(indices, "int32")
    if not indices.dtype.startswith("u"):
        is_negative = dispatch.apply_one("less", [indices, dispatch.convert(0, indices.dtype)])
        wide = indices if indices.dtype == "int64" else dispatch.convert(indices, "int32")
        from_end = dispatch.apply_one("add", [wide, dispatch.convert(x.shape[axis], wide.dtype)])
        indices = dispatch.apply_one("where", [is_negative, from_end, wide])
    return gather(x, indices, axis)


def gather(x: Any, indices: Any, axis: int) -> Any:
    """`take` of indices that are from 0 on; others are the nearest in range."""
    indices = dispatch.convert(indices, like=x)
    if indices.dtype not in ("int32", "int64"):
        indices = dispatch.convert(indices, "int32")
    return dispatch.apply_one("gather", [x, indices], {"axis": axis})


def _is_symbolic(x: Any) -> bool:
    return not hasattr(x, "numpy")


@op
def one_hot(
    x: Any, num_classes: int, axis: int = -1, dtype: Any = None, sparse: bool = False
) -> Any:
    """A new axis with 1 at the place that each integer names and 0 elsewhere.

    Args:
        x: Integers of any shape, from 0 to num_classes - 1; others give zeros only. Fractions are
            cut off floating numbers.
        num_classes: Size of the new axis.
        axis: Where the new axis is in the result; a negative one counts from its end.
        dtype: By default `floatx`.
        sparse: Only False: there are no sparse tensors.

    Returns:
        A tensor of the shape of `x` with the new axis, in `dtype`.

    Raises:
        ValueError: for sparse=True, or a place that the result does not have.

    Example:

    >>> from kerascnn import ops
    >>> ops.one_hot([0, 2], 3).numpy().tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    >>> ops.one_hot([0, 2, 2], 3, axis=0, dtype="int32").numpy().tolist()
    [[1, 0, 0], [0, 0, 0], [0, 1, 1]]
    """
    if sparse:
        raise ValueError("one_hot: there are no sparse tensors. Received: sparse=True")
    x = dispatch.convert(x)
    if x.dtype not in ("int32", "int64"):
        x = dispatch.convert(x, "int32")
    attributes = {"depth": int(num_classes), "dtype": dtypes.standardize_dtype(dtype)}
    result = dispatch.apply_one("one_hot", [x], attributes)
    return result if axis in (-1, len(x.shape)) else moveaxis(result, -1, axis)

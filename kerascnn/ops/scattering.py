"""Elements put or added up at places that other tensors name.

Sums are the adjoint of `take`. What else meets at a place is compared with all places, which takes
memory for each pair: meant for a few thousand of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.ops import creation, dispatch, elementwise, joining, reduction, shaping, statistics
from kerascnn.symbolic.operation import op

__all__ = [
    "scatter",
    "scatter_update",
    "segment_max",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "slice",
    "slice_update",
    "unravel_index",
]


def _count(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _flat_places(indices: Any, sizes: Sequence[int]) -> Any:
    """Returns positions (n,) in the flattened axes `sizes` for index tuples (..., len(sizes))."""
    indices = dispatch.convert(indices)
    if dtypes.is_float(indices.dtype) or not indices.shape or indices.shape[-1] != len(sizes):
        raise ValueError(
            f"Each index names places along axes of sizes {tuple(sizes)}: integers of shape "
            f"(..., {len(sizes)}). Received: {indices.dtype} of shape {tuple(indices.shape)}"
        )
    indices = dispatch.convert(indices, "int32")
    extents = np.asarray(sizes, "int32")
    indices = elementwise.where(
        elementwise.less(indices, 0), elementwise.add(indices, extents), indices
    )
    steps = np.array([_count(sizes[i + 1 :]) for i in range(len(sizes))], "int32")
    places = reduction.sum(elementwise.multiply(indices, steps), -1)
    # An update that is out of range goes to a place after the end, which is dropped.
    inside = reduction.all(
        elementwise.logical_and(
            elementwise.greater_equal(indices, 0), elementwise.less(indices, extents)
        ),
        -1,
    )
    return shaping.reshape(elementwise.where(inside, places, _count(sizes)), -1)


def sums(values: Any, places: Any, count: int) -> Any:
    """Adds values (n, ...) at `places` of a tensor (count, ...); other places are dropped."""
    work = values.dtype if dtypes.is_float(values.dtype) else "float64"
    attributes = {"axis": 0, "input_shape": [count + 1, *values.shape[1:]]}
    inside = elementwise.logical_and(
        elementwise.greater_equal(places, 0), elementwise.less(places, count)
    )
    places = elementwise.where(inside, places, count)
    total = dispatch.apply_one("gather_grad", [dispatch.convert(values, work), places], attributes)
    return creation.cast(total[:count], values.dtype)


def _meeting(values: Any, places: Any, count: int, name: str, neutral: float) -> Any:
    """Reduces values (n, ...) by `name` at each of `count` places."""
    at = elementwise.equal(
        np.arange(count, dtype="int32")[:, None], shaping.reshape(places, (1, -1))
    )
    at = shaping.reshape(at, [*at.shape, *[1] * (len(values.shape) - 1)])
    candidates = elementwise.where(
        at, shaping.expand_dims(values, 0), dispatch.convert(neutral, values.dtype)
    )
    reduce = statistics.prod if name == "prod" else getattr(reduction, name)
    return creation.cast(reduce(candidates, 1), values.dtype)


@op
def scatter(indices: Any, values: Any, shape: Sequence[int]) -> Any:
    """Zeros of a shape, with values added at indices.

    Args:
        indices: (..., k) integers, each row naming a place along the first k axes of the result.
            Negative ones count from the end; a value for a place out of range is left out.
        values: (..., *shape[k:]) of any dtype; values of one place are added up.
        shape: Shape of the result.

    Returns:
        A tensor of shape `shape` and the dtype of `values`.

    Raises:
        ValueError: for indices that are floating or don't fit the shape.

    Source: https://www.tensorflow.org/api_docs/python/tf/scatter_nd

    Example:

    >>> from kerascnn import ops
    >>> ops.scatter([[0], [2], [2]], [1.0, 2.0, 3.0], (4,)).numpy().tolist()
    [1.0, 0.0, 5.0, 0.0]
    """
    indices = dispatch.convert(indices)
    values = dispatch.convert(values)
    shape = [int(n) for n in shape]
    depth = indices.shape[-1]
    places = _flat_places(indices, shape[:depth])
    values = shaping.reshape(values, (places.shape[0], *shape[depth:]))
    return shaping.reshape(sums(values, places, _count(shape[:depth])), shape)


@op
def scatter_update(inputs: Any, indices: Any, updates: Any, reduction: str | None = None) -> Any:
    """inputs[indices] = updates, or what a reduction makes of both; `inputs` itself stays as it is.

    All but "add" compare each place with each update, which suits a few thousand of them.

    Args:
        inputs: Tensor of any shape and dtype.
        indices: (n, k) integers, each row naming a place along the first k axes. Negative ones
            count from the end; an update of a place out of range is left out.
        updates: (n, *inputs.shape[k:]), converted to the dtype of `inputs`.
        reduction: None (the last update of a place stays), "add", "max", "min" or "mul".

    Returns:
        A tensor of the shape and dtype of `inputs`.

    Raises:
        ValueError: for another reduction, and indices that are floating or don't fit the inputs.

    Source: https://www.tensorflow.org/api_docs/python/tf/tensor_scatter_nd_update

    Example:

    >>> from kerascnn import ops
    >>> ops.scatter_update([0.0, 0.0, 0.0], [[1]], [5.0]).numpy().tolist()
    [0.0, 5.0, 0.0]
    >>> ops.scatter_update([1, 2, 3], [[0], [0], [2]], [9, 8, 1], "max").numpy().tolist()
    [9, 2, 3]
    """
    known = ("add", "max", "min", "mul")
    if reduction is not None and str(reduction).lower() not in known:
        raise ValueError(
            f"Invalid reduction: {reduction}. Supported values are: None, 'add', 'max', 'min', "
            "'mul'."
        )
    inputs = dispatch.convert(inputs)
    indices = dispatch.convert(indices)
    updates = dispatch.convert(updates, inputs.dtype)
    depth = indices.shape[-1]
    places = _flat_places(indices, list(inputs.shape[:depth]))
    count = _count(inputs.shape[:depth])
    flat = shaping.reshape(inputs, (count, *inputs.shape[depth:]))
    updates = shaping.reshape(updates, (places.shape[0], *inputs.shape[depth:]))
    result = _update(flat, places, updates, reduction and reduction.lower())
    return shaping.reshape(result, tuple(inputs.shape))


def _update(flat: Any, places: Any, updates: Any, kind: str | None) -> Any:
    count = flat.shape[0]
    if kind == "add":
        return elementwise.add(flat, sums(updates, places, count))
    if kind == "mul":
        return elementwise.multiply(flat, _meeting(updates, places, count, "prod", 1))
    if kind in ("max", "min"):
        low, high = dtypes.limits(flat.dtype)
        if dtypes.is_float(flat.dtype):
            low, high = -float("inf"), float("inf")
        best = _meeting(updates, places, count, kind, low if kind == "max" else high)
        return (elementwise.maximum if kind == "max" else elementwise.minimum)(flat, best)
    # The last update of each place has the largest number.
    order = np.arange(1, places.shape[0] + 1, dtype="int32")
    last = _meeting(dispatch.convert(order), places, count, "max", 0)
    chosen = shaping.gather(updates, elementwise.maximum(elementwise.subtract(last, 1), 0), 0)
    is_new = shaping.reshape(elementwise.greater(last, 0), [count, *[1] * (len(flat.shape) - 1)])
    return elementwise.where(is_new, chosen, flat)


def _segments(data: Any, segment_ids: Any, num_segments: int | None, name: str) -> Any:
    """Returns the data, segment numbers (n,) and the number of segments."""
    data, ids = dispatch.convert(data), dispatch.convert(segment_ids)
    if not data.shape or not ids.shape:
        raise ValueError(
            f"{name}: both need an axis. Received shapes: {tuple(data.shape)}, {tuple(ids.shape)}"
        )
    if tuple(ids.shape) != tuple(data.shape[: len(ids.shape)]) or len(ids.shape) != 1:
        raise ValueError(
            "`segment_ids` must be a vector as long as the first axis of `data`. Received shapes: "
            f"data {tuple(data.shape)}, segment_ids {tuple(ids.shape)}"
        )
    if num_segments is None:
        if not hasattr(ids, "numpy"):
            raise ValueError(f"{name}: in a traced step, num_segments must be given.")
        num_segments = int(ids.numpy().max(initial=-1)) + 1
    return data, dispatch.convert(ids, "int32"), int(num_segments)


@op
def segment_sum(
    data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False
) -> Any:
    """The sums of the rows of each segment.

    Args:
        data: (n, ...) of any dtype.
        segment_ids: (n,) integers: which segment each row is in; others than 0 to
            num_segments - 1 are left out.
        num_segments: By default one more than the largest number; a compiled step must say it.
        sorted: Has no effect: the numbers can be in any order.

    Returns:
        (num_segments, ...) in the dtype of `data`, with 0 for an empty segment.

    Raises:
        ValueError: for `segment_ids` of another shape, and where a compiled step does not say
            `num_segments`.

    Source: https://www.tensorflow.org/api_docs/python/tf/math/unsorted_segment_sum

    Example:

    >>> from kerascnn import ops
    >>> ops.segment_sum([1, 2, 10], [0, 0, 2]).numpy().tolist()
    [3, 0, 10]
    """
    data, ids, count = _segments(data, segment_ids, num_segments, "segment_sum")
    return sums(data, ids, count)


@op
def segment_max(
    data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False
) -> Any:
    """The largest elements of each segment.

    Each row is compared with each segment, which suits a few thousand of them.

    Args:
        data: (n, ...) of numbers.
        segment_ids: (n,) integers, as for `segment_sum`.
        num_segments: As for `segment_sum`.
        sorted: Has no effect.

    Returns:
        (num_segments, ...) in the dtype of `data`. An empty segment has -inf, or the lowest
        integer.

    Raises:
        ValueError: as `segment_sum`.

    Example:

    >>> from kerascnn import ops
    >>> ops.segment_max([[1.0, 5.0], [3.0, 2.0], [7.0, 7.0]], [0, 0, 1]).numpy().tolist()
    [[3.0, 5.0], [7.0, 7.0]]
    """
    data, ids, count = _segments(data, segment_ids, num_segments, "segment_max")
    lowest = -float("inf") if dtypes.is_float(data.dtype) else dtypes.limits(data.dtype)[0]
    return _meeting(data, ids, count, "max", lowest)


@op
def segment_min(
    data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False
) -> Any:
    """The smallest elements of each segment.

    Each row is compared with each segment, which suits a few thousand of them.

    Args:
        data: (n, ...) of numbers.
        segment_ids: (n,) integers, as for `segment_sum`.
        num_segments: As for `segment_sum`.
        sorted: Has no effect.

    Returns:
        (num_segments, ...) in the dtype of `data`. An empty segment has inf, or the largest
        integer.

    Raises:
        ValueError: as `segment_sum`.

    Example:

    >>> from kerascnn import ops
    >>> ops.segment_min([4.0, 1.0, 2.0], [0, 0, 2]).numpy().tolist()
    [1.0, inf, 2.0]
    """
    data, ids, count = _segments(data, segment_ids, num_segments, "segment_min")
    largest = float("inf") if dtypes.is_float(data.dtype) else dtypes.limits(data.dtype)[1]
    return _meeting(data, ids, count, "min", largest)


@op
def segment_prod(
    data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False
) -> Any:
    """The products of the rows of each segment.

    Each row is compared with each segment, which suits a few thousand of them.

    Args:
        data: (n, ...) of numbers.
        segment_ids: (n,) integers, as for `segment_sum`.
        num_segments: As for `segment_sum`.
        sorted: Has no effect.

    Returns:
        (num_segments, ...) in the dtype of `data`, with 1 for an empty segment.

    Raises:
        ValueError: as `segment_sum`.

    Example:

    >>> from kerascnn import ops
    >>> ops.segment_prod([4, 5, 2], [0, 0, 2]).numpy().tolist()
    [20, 1, 2]
    """
    data, ids, count = _segments(data, segment_ids, num_segments, "segment_prod")
    return _meeting(data, ids, count, "prod", 1)


@op
def slice(inputs: Any, start_indices: Any, shape: Sequence[int]) -> Any:
    """The part of a shape that starts at an index, which may be known only in the step.

    Args:
        inputs: Tensor of any shape and dtype.
        start_indices: One integer for each axis, or a vector of them. A negative one counts as 0;
            one from which the part would not fit is moved back.
        shape: Shape of the part; -1 for all from a start on that is known.

    Returns:
        A tensor of shape `shape` and the dtype of `inputs`.

    Raises:
        ValueError: for another number of starts than of axes, a part larger than the tensor, and -1
            with a start that is known only later.

    Source: https://docs.jax.dev/en/latest/_autosummary/jax.lax.dynamic_slice.html

    Example:

    >>> from kerascnn import ops
    >>> x = [[1, 2, 3], [4, 5, 6]]
    >>> ops.slice(x, (0, 1), (2, 2)).numpy().tolist()
    [[2, 3], [5, 6]]
    >>> ops.slice(x, (1, 2), (1, 2)).numpy().tolist()  # moved back by a column
    [[5, 6]]
    """
    inputs = dispatch.convert(inputs)
    for axis, (start, size) in enumerate(zip(_starts(start_indices, inputs), shape, strict=True)):
        if size == -1 and isinstance(start, (int, np.integer)):
            size = max(inputs.shape[axis] - max(int(start), 0), 0)
        if size < 0:
            raise ValueError(
                f"slice: sizes are 0 or more, or -1 where the start is a number. Received: "
                f"start_indices={start_indices}, shape={tuple(shape)}"
            )
        most = inputs.shape[axis] - int(size)
        if most < 0:
            raise ValueError(
                f"slice: a part of shape {tuple(shape)} does not fit {tuple(inputs.shape)}."
            )
        if isinstance(start, (int, np.integer)):
            first = min(max(int(start), 0), most)
            key = (np.s_[:],) * axis + (np.s_[first : first + int(size)],)
            inputs = inputs[key]
        else:
            first = elementwise.clip(start, 0, most)
            places = elementwise.add(np.arange(int(size), dtype="int32"), first)
            inputs = shaping.take(inputs, places, axis)
    return inputs


def _starts(start_indices: Any, inputs: Any) -> list[Any]:
    if isinstance(start_indices, (list, tuple)):
        starts = list(start_indices)
    elif isinstance(start_indices, np.ndarray):
        starts = start_indices.tolist()
    else:
        starts = joining.unstack(dispatch.convert(dispatch.convert(start_indices), "int32"))
    if len(starts) != len(inputs.shape):
        raise ValueError(
            f"One start for each of the {len(inputs.shape)} axes is needed. Received: {len(starts)}"
        )
    return starts


@op
def slice_update(inputs: Any, start_indices: Any, updates: Any) -> Any:
    """The tensor with the part from an index on replaced; `inputs` itself stays as it is.

    Args:
        inputs: Tensor of any shape and dtype.
        start_indices: One integer for each axis, or a vector of them, known or not. A negative one
            counts as 0; one from which the part would not fit is moved back.
        updates: The part's new elements, with as many axes as `inputs`; converted to its dtype.

    Returns:
        A tensor of the shape and dtype of `inputs`.

    Raises:
        ValueError: for another number of starts than of axes, and a part larger than the tensor.

    Source: https://docs.jax.dev/en/latest/_autosummary/jax.lax.dynamic_update_slice.html

    Example:

    >>> from kerascnn import ops
    >>> ops.slice_update([[1, 2, 3], [4, 5, 6]], (0, 1), [[0], [9]]).numpy().tolist()
    [[1, 0, 3], [4, 9, 6]]
    """
    inputs = dispatch.convert(inputs)
    updates = dispatch.convert(updates, inputs.dtype)
    starts = _starts(start_indices, inputs)
    inside = None
    for axis, start in enumerate(starts):
        size, length = updates.shape[axis], inputs.shape[axis]
        if size > length:
            raise ValueError(
                f"slice_update: updates of shape {tuple(updates.shape)} don't fit "
                f"{tuple(inputs.shape)}."
            )
        first = elementwise.clip(start, 0, length - size)
        place = elementwise.subtract(np.arange(length, dtype="int32"), first)
        here = elementwise.logical_and(
            elementwise.greater_equal(place, 0), elementwise.less(place, size)
        )
        view = [-1 if a == axis else 1 for a in range(len(starts))]
        here = shaping.reshape(here, view)
        inside = here if inside is None else elementwise.logical_and(inside, here)
        updates = shaping.gather(updates, elementwise.clip(place, 0, max(size - 1, 0)), axis)
    return inputs if inside is None else elementwise.where(inside, updates, inputs)


@op
def unravel_index(indices: Any, shape: Sequence[int]) -> Any:
    """Positions in a flattened tensor as one index for each of its axes.

    Args:
        indices: Integers of any shape from 0 to the number of elements - 1. Others are not found:
            they count modulo that number.
        shape: Shape of the tensor.

    Returns:
        A tuple of one tensor for each axis, in the shape and dtype of `indices`.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.unravel_index.html

    Example:

    >>> from kerascnn import ops
    >>> row, column = ops.unravel_index([1, 5], (2, 3))
    >>> row.numpy().tolist(), column.numpy().tolist()
    ([0, 1], [1, 2])
    """
    indices = dispatch.convert(indices)
    results = []
    for size in reversed([int(n) for n in shape]):
        results.append(elementwise.mod(indices, size))
        indices = elementwise.floor_divide(indices, size)
    return tuple(reversed(results))

"""Pooling over 1, 2 and 3 spatial axes, with windows of one size and adapted to an output size.

The core pools images. A sequence is an image of one row; a volume is pooled plane by plane, then
along its depth, which gives the same maxima (and the same first of equal ones) and means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import file_budget
from kerascnn.ops import dispatch, elementwise, shaping, windows
from kerascnn.symbolic.operation import op

__all__ = [
    "adaptive_average_pool",
    "adaptive_max_pool",
    "average_pool",
    "max_pool",
]

Sizes = int | Sequence[int]


@op
def max_pool(
    inputs: Any,
    pool_size: Sizes,
    strides: Sizes | None = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> Any:
    """The largest element of each window.

    Args:
        inputs: (n, *spatial, c), or (n, c, *spatial) with data_format "channels_first"; 1 to 3
            spatial axes. Integers become `floatx`.
        pool_size: Size of the window.
        strides: Steps between windows, by default their size.
        padding: "valid" or "same"; what is added never wins.
        data_format: By default `config.image_data_format()`.

    Returns:
        (n, *outputs, c), or (n, c, *outputs), in the dtype of `inputs`.

    Raises:
        ValueError: for a window larger than the input.

    Example:

    >>> from kerascnn import ops
    >>> ops.max_pool(ops.ones((1, 4, 4, 3)), 2).shape
    (1, 2, 2, 3)
    >>> ops.max_pool(ops.ones((1, 9, 3)), 3, strides=2).shape
    (1, 4, 3)
    """
    return _pool("max_pool", inputs, pool_size, strides, padding, data_format)


@op
def average_pool(
    inputs: Any,
    pool_size: Sizes,
    strides: Sizes | None = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> Any:
    """The mean of the elements of each window that lie inside the input.

    Args:
        inputs: (n, *spatial, c), or (n, c, *spatial) with data_format "channels_first"; 1 to 3
            spatial axes. Integers become `floatx`.
        pool_size: Size of the window.
        strides: Steps between windows, by default their size.
        padding: "valid" or "same"; what is added does not count.
        data_format: By default `config.image_data_format()`.

    Returns:
        (n, *outputs, c), or (n, c, *outputs), in the dtype of `inputs`.

    Raises:
        ValueError: for a window larger than the input.

    Example:

    >>> from kerascnn import ops
    >>> x = ops.reshape([1.0, 3.0, 8.0], (1, 3, 1))
    >>> ops.average_pool(x, 2, padding="same").numpy().ravel().tolist()
    [2.0, 8.0]
    """
    return _pool("average_pool", inputs, pool_size, strides, padding, data_format)


_CORE = {"max_pool": "max_pool2d", "average_pool": "avg_pool2d"}


def _pool(
    name: str,
    inputs: Any,
    pool_size: Sizes,
    strides: Sizes | None,
    padding: str,
    data_format: str | None,
) -> Any:
    if str(padding).lower() not in ("valid", "same"):
        raise ValueError(f"`padding` must be 'valid' or 'same'. Received: padding={padding!r}")
    x, first = windows.channels_last(name, inputs, data_format)
    rank = len(x.shape) - 2
    window = windows.sizes(pool_size, rank, "pool_size")
    steps = window if strides is None else windows.sizes(strides, rank, "strides")
    pads = windows.padding_of(padding, x.shape[1:-1], window, steps, [1] * rank)
    if rank != 2:
        windows.check_fits(name, x.shape[1:-1], window, pads, [1] * rank)
    return windows.restore_format(_pool_last(_CORE[name], x, window, steps, pads), first)


def _pool_last(core: str, x: Any, window: list[int], steps: list[int], pads: windows.Pairs) -> Any:
    """Pools channels-last inputs."""
    if len(window) == 2:
        return _pool_images(core, x, window, steps, pads)
    if len(window) == 1:
        x = shaping.expand_dims(x, 1)
        return shaping.squeeze(_pool_images(core, x, [1, *window], [1, *steps], [(0, 0), *pads]), 1)
    n, depth, h, w, c = x.shape
    planes = shaping.reshape(x, (n * depth, h, w, c))
    planes = _pool_images(core, planes, window[1:], steps[1:], pads[1:])
    h, w = planes.shape[1:3]
    columns = shaping.reshape(planes, (n, depth, h * w, c))
    y = _pool_images(core, columns, [window[0], 1], [steps[0], 1], [pads[0], (0, 0)])
    return shaping.reshape(y, (n, y.shape[1], h, w, c))


def _pool_images(
    core: str, x: Any, window: list[int], steps: list[int], pads: windows.Pairs
) -> Any:
    if window == [1, 1] == steps:
        return x
    attributes = {
        "window": window,
        "strides": steps,
        "padding": [n for pair in pads for n in pair],
    }
    return dispatch.apply_one(core, [x], attributes)


@op
def adaptive_max_pool(inputs: Any, output_size: Sizes, data_format: str | None = None) -> Any:
    """The largest element of each of `output_size` windows that together cover the input.

    Window i of o over a length n reaches from floor(i n / o) to ceil((i + 1) n / o), so windows
    overlap where n is no multiple of o.

    Args:
        inputs: (n, *spatial, c), or (n, c, *spatial) with data_format "channels_first"; 1 to 3
            spatial axes. Integers become `floatx`.
        output_size: Length of each spatial axis of the output, or one for all.
        data_format: By default `config.image_data_format()`.

    Returns:
        (n, *output_size, c), or (n, c, *output_size), in the dtype of `inputs`.

    Raises:
        ValueError: for a size below 1.

    Example:

    >>> from kerascnn import ops
    >>> ops.adaptive_max_pool([[[1.0], [3.0], [2.0], [0.0], [1.0]]], 2).numpy().ravel().tolist()
    [3.0, 2.0]
    """
    return _adaptive("max_pool", inputs, output_size, data_format)


@op
def adaptive_average_pool(inputs: Any, output_size: Sizes, data_format: str | None = None) -> Any:
    """The mean of each of `output_size` windows that cover the input; see `adaptive_max_pool`.

    Args:
        inputs: (n, *spatial, c), or (n, c, *spatial) with data_format "channels_first"; 1 to 3
            spatial axes. Integers become `floatx`.
        output_size: Length of each spatial axis of the output, or one for all.
        data_format: By default `config.image_data_format()`.

    Returns:
        (n, *output_size, c), or (n, c, *output_size), in the dtype of `inputs`.

    Raises:
        ValueError: for a size below 1.

    Example:

    >>> from kerascnn import ops
    >>> x = [[[1.0], [3.0], [2.0], [0.0], [1.0]]]
    >>> ops.adaptive_average_pool(x, 2).numpy().ravel().tolist()
    [2.0, 1.0]
    """
    return _adaptive("average_pool", inputs, output_size, data_format)


def _adaptive(name: str, inputs: Any, output_size: Sizes, data_format: str | None) -> Any:
    x, first = windows.channels_last(f"adaptive_{name}", inputs, data_format)
    rank = len(x.shape) - 2
    outputs = windows.sizes(output_size, rank, "output_size")
    lengths = list(x.shape[1:-1])
    if not all(lengths):
        raise ValueError(f"adaptive_{name}: an input of shape {tuple(x.shape)} has no elements.")
    if not any(n % o for n, o in zip(lengths, outputs, strict=True)):
        window = [n // o for n, o in zip(lengths, outputs, strict=True)]
        y = _pool_last(_CORE[name], x, window, window, [(0, 0)] * rank)
        return windows.restore_format(y, first)
    # The last axis comes first, so that the first of equal maxima in reading order gets the
    # gradient.
    for axis in range(rank, 0, -1):
        x = _adaptive_axis(name, x, axis, outputs[axis - 1])
    return windows.restore_format(x, first)


def _adaptive_axis(name: str, x: Any, axis: int, outputs: int) -> Any:
    """Adaptive pooling along one axis of channels-last inputs.

    Windows of several lengths become windows of one, side by side: a longer axis is gathered, in
    which short windows are filled up.
    """
    n = x.shape[axis]
    file_budget.check_positions(n + outputs, name)
    begins = np.arange(outputs) * n // outputs
    ends = -(-(np.arange(outputs) + 1) * n // outputs)
    longest = int((ends - begins).max())
    if n % outputs:
        places = begins[:, None] + np.arange(longest)
        is_filling = places >= ends[:, None]
        if name == "max_pool":  # the padding repeats an element of the window
            places = np.where(is_filling, ends[:, None] - 1, places)
        elif is_filling.any():  # the padding is zeros, which the mean does not count
            widths = [(0, int(i == axis)) for i in range(len(x.shape))]
            x = shaping.pad(x, widths)
            places = np.where(is_filling, n, places)
        x = shaping.take(x, places.reshape(-1).astype("int32"), axis)
    y = _pool_one_axis(name, x, axis, longest)
    if name == "average_pool" and n % outputs and (ends - begins).min() < longest:
        shape = [outputs if i == axis else 1 for i in range(len(x.shape))]
        counted = (longest / (ends - begins)).reshape(shape)
        y = elementwise.multiply(y, dispatch.convert(counted, x.dtype, like=x))
    return y


def _pool_one_axis(name: str, x: Any, axis: int, window: int) -> Any:
    """Pools an axis in adjacent windows; the axes before it, and those after it, are joined."""
    shape = list(x.shape)
    before, after = int(np.prod(shape[:axis])), int(np.prod(shape[axis + 1 : -1]))
    images = shaping.reshape(x, (before, shape[axis], after, shape[-1]))
    y = _pool_images(_CORE[name], images, [window, 1], [window, 1], [(0, 0), (0, 0)])
    shape[axis] = y.shape[1]
    return shaping.reshape(y, shape)

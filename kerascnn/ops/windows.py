"""What convolution and pooling share: windows over 1, 2 or 3 spatial axes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import config, dtypes, file_budget
from kerascnn.ops import dispatch, indexing, shaping

Pairs = list[tuple[int, int]]


def sizes(value: Any, rank: int, name: str, lowest: int = 1) -> list[int]:
    """One integer for all `rank` spatial axes, or one for each, as a list.

    Args:
        value: An integer, or a list or tuple of them.
        rank: Number of spatial axes.
        name: What the error calls the argument.
        lowest: The smallest size allowed.

    Returns:
        A list of `rank` integers.

    Raises:
        ValueError: for anything else, and for sizes below `lowest`.

    Example:

    >>> from kerascnn.ops import windows
    >>> windows.sizes(2, 3, "strides")
    [2, 2, 2]
    """
    values: list[int] = []
    try:
        values = [operator.index(v) for v in value]
    except TypeError:
        if not isinstance(value, (list, tuple)) and hasattr(value, "__index__"):
            values = [operator.index(value)] * rank
    if len(values) != rank or any(v < lowest for v in values):
        raise ValueError(
            f"`{name}` must be an integer from {lowest} on, or {rank} of them. "
            f"Received: {name}={value!r}"
        )
    return values


def same_padding(
    lengths: Sequence[int], window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Pairs:
    """Zeros before and after each axis that make the output ceil(length / stride) long.

    What is odd goes to the end.

    Args:
        lengths: Sizes of the spatial axes of the input.
        window: Sizes of the window.
        strides: Steps between windows.
        dilations: Steps between the elements of a window.

    Returns:
        A pair (before, after) for each axis.

    Source: https://www.tensorflow.org/api_docs/python/tf/nn (notes on padding)

    Example:

    >>> from kerascnn.ops import windows
    >>> windows.same_padding([5, 6], [2, 3], [2, 2], [1, 1])
    [(0, 1), (0, 1)]
    """
    padding = []
    for n, k, s, d in zip(lengths, window, strides, dilations, strict=True):
        total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        padding.append((total // 2, total - total // 2))
    return padding


def padding_of(
    padding: str,
    lengths: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Pairs:
    """Returns the zeros around each axis for "valid", "same" or (on one axis) "causal".

    Args:
        padding: The name, in upper or lower case.
        lengths: Sizes of the spatial axes of the input.
        window: Sizes of the window.
        strides: Steps between windows.
        dilations: Steps between the elements of a window.

    Returns:
        A pair (before, after) for each axis.

    Raises:
        ValueError: for another name, and for "causal" on several axes.

    Example:

    >>> from kerascnn.ops import windows
    >>> windows.padding_of("causal", [9], [3], [1], [2])
    [(4, 0)]
    """
    name = str(padding).lower()
    if name == "valid":
        return [(0, 0)] * len(lengths)
    if name == "same":
        return same_padding(lengths, window, strides, dilations)
    if name == "causal" and len(lengths) == 1:
        return [(dilations[0] * (window[0] - 1), 0)]
    raise ValueError(f"`padding` must be 'valid' or 'same'. Received: padding={padding!r}")


def check_fits(
    name: str,
    lengths: Sequence[int],
    window: Sequence[int],
    padding: Pairs,
    dilations: Sequence[int],
) -> None:
    """Raises a ValueError if the window is larger than the padded input.

    Args:
        name: The op that the error names.
        lengths: Sizes of the spatial axes of the input.
        window: Sizes of the window.
        padding: A pair (before, after) for each axis.
        dilations: Steps between the elements of a window.

    Returns:
        Nothing.

    Raises:
        ValueError: for a window that does not fit.

    Example:

    >>> from kerascnn.ops import windows
    >>> windows.check_fits("conv", [5], [3], [(0, 0)], [2])
    """
    for n, k, (before, after), d in zip(lengths, window, padding, dilations, strict=True):
        if d * (k - 1) + 1 > n + before + after:
            raise ValueError(
                f"{name}: a window of {tuple(window)} with dilation {tuple(dilations)} is larger "
                f"than the input, {tuple(lengths)}; use a smaller window, padding='same', or a "
                "larger input."
            )


def channels_last(name: str, inputs: Any, data_format: str | None) -> tuple[Any, bool]:
    """Floating inputs with the channels in the last axis, and whether they came first.

    Args:
        name: The op that the error names.
        inputs: (n, *spatial, c), or (n, c, *spatial) with data_format "channels_first"; 1 to 3
            spatial axes. Integers and bool become `floatx`.
        data_format: By default `config.image_data_format()`.

    Returns:
        (tensor (n, *spatial, c), whether the format was "channels_first").

    Raises:
        ValueError: for a tensor that does not have 1, 2 or 3 spatial axes.

    Example:

    >>> from kerascnn import ops
    >>> from kerascnn.ops import windows
    >>> x, first = windows.channels_last("conv", ops.ones((1, 3, 4, 5)), "channels_first")
    >>> x.shape, first
    ((1, 4, 5, 3), True)
    """
    first = config.standardize_data_format(data_format) == "channels_first"
    x = dispatch.convert(inputs)
    rank = len(x.shape) - 2
    if rank not in (1, 2, 3):
        raise ValueError(
            f"{name}: the input needs a batch axis, 1 to 3 spatial axes (for images: height and "
            f"width) and one of channels. Received: shape={tuple(x.shape)}"
        )
    if not dtypes.is_float(x.dtype):
        x = dispatch.convert(x, dtypes.float_result_type(x.dtype))
    return (shaping.transpose(x, [0, *range(2, rank + 2), 1]) if first else x), first


def restore_format(y: Any, first: bool) -> Any:
    """Moves the channels back to axis 1 if they came there.

    Args:
        y: (n, *spatial, c)
        first: Whether they came there, as `channels_last` tells.

    Returns:
        (n, c, *spatial) if `first`, else `y`.

    Example:

    >>> from kerascnn import ops
    >>> from kerascnn.ops import windows
    >>> windows.restore_format(ops.ones((1, 4, 5, 3)), True).shape
    (1, 3, 4, 5)
    """
    rank = len(y.shape) - 2
    return shaping.transpose(y, [0, rank + 1, *range(1, rank + 1)]) if first else y


def cut(x: Any, axis: int, window: int, stride: int, dilation: int) -> Any:
    """Splits an axis in two: the number of a window's piece, and the place in it.

    Args:
        x: Tensor of any shape and dtype.
        axis: The axis, counted from 0.
        window: Number of elements in a piece.
        stride: Steps between pieces.
        dilation: Steps between the elements of a piece.

    Returns:
        The shape of `x` with (pieces, window) in the place of the axis.

    Example:

    >>> from kerascnn import ops
    >>> from kerascnn.ops import windows
    >>> windows.cut(ops.arange(5), 0, window=3, stride=1, dilation=1).numpy().tolist()
    [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    """
    pieces = (x.shape[axis] - dilation * (window - 1) - 1) // stride + 1
    if stride == window and dilation == 1:
        # Adjacent pieces need no copy.
        if x.shape[axis] != pieces * window:
            x = indexing.get_item(x, (*[slice(None)] * axis, slice(0, pieces * window)))
        return shaping.reshape(x, (*x.shape[:axis], pieces, window, *x.shape[axis + 1 :]))
    file_budget.check_positions(pieces * window, "windows of an axis")
    places = np.arange(pieces)[:, None] * stride + np.arange(window) * dilation
    return shaping.take(x, places.astype("int32"), axis)

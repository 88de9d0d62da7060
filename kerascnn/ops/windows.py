"""What convolution and pooling share: windows over 1, 2 or 3 spatial axes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import config, dtypes
from kerascnn.ops import dispatch, indexing, shaping

Pairs = list[tuple[int, int]]


def sizes(value: Any, rank: int, name: str, lowest: int = 1) -> list[int]:
    """One integer for all `rank` spatial axes, or one for each, as a list.

    Raises:
        ValueError: for anything else, and for sizes below `lowest`.
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
    """Returns the zeros around each axis for "valid", "same" or (on one axis) "causal"."""
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
    """Raises a ValueError if the window is larger than the padded input."""
    for n, k, (before, after), d in zip(lengths, window, padding, dilations, strict=True):
        if d * (k - 1) + 1 > n + before + after:
            raise ValueError(
                f"{name}: a window of {tuple(window)} with dilation {tuple(dilations)} is larger "
                f"than the input, {tuple(lengths)}; use a smaller window, padding='same', or a "
                "larger input."
            )


def channels_last(name: str, inputs: Any, data_format: str | None) -> tuple[Any, bool]:
    """Floating inputs with the channels in the last axis, and whether they came first.

    Raises:
        ValueError: for a tensor that does not have 1, 2 or 3 spatial axes.
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
    """Moves the channels back to axis 1 if they came there."""
    rank = len(y.shape) - 2
    return shaping.transpose(y, [0, rank + 1, *range(1, rank + 1)]) if first else y


def cut(x: Any, axis: int, window: int, stride: int, dilation: int) -> Any:
    """Splits an axis in two: the number of a window's piece, and the place in it."""
    pieces = (x.shape[axis] - dilation * (window - 1) - 1) // stride + 1
    if stride == window and dilation == 1:
        # Adjacent pieces need no copy.
        if x.shape[axis] != pieces * window:
            x = indexing.get_item(x, (*[slice(None)] * axis, slice(0, pieces * window)))
        return shaping.reshape(x, (*x.shape[:axis], pieces, window, *x.shape[axis + 1 :]))
    places = np.arange(pieces)[:, None] * stride + np.arange(window) * dilation
    return shaping.take(x, places.astype("int32"), axis)

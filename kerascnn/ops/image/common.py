"""What functions of images share: checks, axes, and the conversion back to the images' dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import config, dtypes
from kerascnn.ops import dispatch, elementwise, indexing, rounding, shaping


def check_rank(images: Any, name: str = "images") -> None:
    """Raises a ValueError for what is neither an image nor a batch of images."""
    if len(images.shape) not in (3, 4):
        raise ValueError(
            f"Invalid {name} rank: expected rank 3 (single image) or rank 4 (batch of images). "
            f"Received input with shape: {name}.shape={tuple(images.shape)}"
        )


def check_choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Raises a ValueError for an unknown word."""
    if value not in known:
        raise ValueError(
            f"Invalid value for argument `{name}`. Expected of one {set(known)}. Received: "
            f"{name}={value}"
        )


def spatial_axes(data_format: str) -> tuple[int, int]:
    """The axes of height and width, counted from the end.

    Args:
        data_format: "channels_last" or "channels_first".

    Returns:
        (axis of the height, axis of the width)

    Example:

    >>> from kerascnn import ops
    >>> ops.image.spatial_axes("channels_last"), ops.image.spatial_axes("channels_first")
    ((-3, -2), (-2, -1))
    """
    return (-3, -2) if data_format == "channels_last" else (-2, -1)


def channel_axis(images: Any, data_format: str | None) -> int:
    """The axis of the channels, counted from the start."""
    last = config.standardize_data_format(data_format) == "channels_last"
    return len(images.shape) + (-1 if last else -3)


def as_batch(images: Any, data_format: str | None) -> Any:
    """One image or several as (n, height, width, channels)."""
    if len(images.shape) == 3:
        images = shaping.expand_dims(images, 0)
    if config.standardize_data_format(data_format) == "channels_first":
        images = shaping.transpose(images, (0, 2, 3, 1))
    return images


def from_batch(result: Any, images: Any, data_format: str | None) -> Any:
    """(n, height, width, channels) in the order of `images`, which `as_batch` was given."""
    if config.standardize_data_format(data_format) == "channels_first":
        result = shaping.transpose(result, (0, 3, 1, 2))
    return shaping.squeeze(result, 0) if len(images.shape) == 3 else result


def rounded(x: Any, dtype: str) -> Any:
    """Returns computed pixels in the images' dtype; integers are rounded and kept in range."""
    if not dtypes.is_integer(dtype):
        return dispatch.convert(x, dtype)
    limits = np.iinfo(dtype)
    x = rounding.round(x)
    # Only narrow types need this: float32 cannot hold the limits of wider ones.
    if limits.bits <= 16:
        x = elementwise.clip(x, float(limits.min), float(limits.max))
    return dispatch.convert(x, dtype)


def window(x: Any, parts: dict[int, tuple[int, int]]) -> Any:
    """Takes so many elements along some axes, from a start on."""
    key = [slice(None)] * len(x.shape)
    for axis, (start, size) in parts.items():
        key[axis] = slice(start, start + size)
    return indexing.get_item(x, tuple(key))

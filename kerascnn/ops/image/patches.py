"""Pieces of images and volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import config
from kerascnn.ops import dispatch, shaping, windows
from kerascnn.symbolic.operation import op

__all__ = ["extract_patches", "extract_patches_3d"]

Sizes = int | Sequence[int]


@op
def extract_patches(
    images: Any,
    size: Sizes,
    strides: Sizes | None = None,
    dilation_rate: Sizes = 1,
    padding: str = "valid",
    data_format: str | None = None,
) -> Any:
    """The pieces of images that a window sees, each as the channels of one pixel.

    Args:
        images: (height, width, channels) or (n, height, width, channels); with three sizes, volumes
            that have a depth before the height.
        size: Height and width of the window, or one number for both; depth, height and width for
            volumes.
        strides: Steps from one piece to the next, by default `size`, so that they don't overlap.
        dilation_rate: Steps between the pixels of a piece.
        padding: "valid" or "same".
        data_format: By default the configured one.

    Returns:
        (..., rows, columns, height * width * channels of a piece), or with these channels first; in
        a piece the channels of one pixel are neighbours. The dtype is that of `images`.

    Raises:
        TypeError: for a `size` that is neither a number nor a sequence.
        ValueError: for other lengths of `size`, another number of axes, or a window larger than the
            images.

    Example:

    >>> from kerascnn import ops
    >>> ops.image.extract_patches(ops.ones((2, 20, 20, 3)), (5, 5)).shape
    (2, 4, 4, 75)
    """
    if not isinstance(size, (int, tuple, list)):
        raise TypeError(
            "Invalid `size` argument. Expected an int or a tuple. Received: "
            f"size={size} of type {type(size).__name__}"
        )
    if not isinstance(size, int) and len(size) not in (2, 3):
        raise ValueError(
            "Invalid `size` argument. Expected a tuple of length 2 or 3. Received: "
            f"size={size} with length {len(size)}"
        )
    rank = 2 if isinstance(size, int) else len(size)
    return _patches(images, rank, size, strides, dilation_rate, padding, data_format)


@op
def extract_patches_3d(
    volumes: Any,
    size: Sizes,
    strides: Sizes | None = None,
    dilation_rate: Sizes = 1,
    padding: str = "valid",
    data_format: str | None = None,
) -> Any:
    """As `extract_patches`, of volumes.

    Args:
        volumes: (depth, height, width, channels) or (n, depth, height, width, channels), or with
            the channels first; a tensor of any dtype.
        size: Depth, height and width of the window, or one number for all.
        strides: Steps from one piece to the next, by default `size`, so that they don't overlap.
        dilation_rate: Steps between the voxels of a piece.
        padding: "valid" or "same".
        data_format: By default the configured one.

    Returns:
        (..., planes, rows, columns, depth * height * width * channels of a piece), or with these
        channels first; in a piece the channels of one voxel are neighbours. The dtype is that of
        `volumes`.

    Raises:
        TypeError: for a `size` that is neither a number nor three of them.
        ValueError: for another number of axes, or a window larger than the volumes.

    Example:

    >>> from kerascnn import ops
    >>> ops.image.extract_patches_3d(ops.ones((2, 10, 10, 10, 3)), 3).shape
    (2, 3, 3, 3, 81)
    """
    if not isinstance(size, int) and (not isinstance(size, (tuple, list)) or len(size) != 3):
        raise TypeError(
            "Invalid `size` argument. Expected an int or a tuple of length 3. "
            f"Received: size={size}"
        )
    return _patches(volumes, 3, size, strides, dilation_rate, padding, data_format)


def _patches(
    images: Any,
    rank: int,
    size: Sizes,
    strides: Sizes | None,
    dilation_rate: Sizes,
    padding: str,
    data_format: str | None,
) -> Any:
    first = config.standardize_data_format(data_format) == "channels_first"
    x = dispatch.convert(images)
    if len(x.shape) not in (rank + 1, rank + 2):
        raise ValueError(
            f"extract_patches: expected {rank} spatial axes, channels, and perhaps a batch axis. "
            f"Received input with shape: {tuple(x.shape)}"
        )
    window = windows.sizes(size, rank, "size")
    steps = windows.sizes(strides or size, rank, "strides")
    dilations = windows.sizes(dilation_rate, rank, "dilation_rate")
    is_single = len(x.shape) == rank + 1
    if is_single:
        x = shaping.expand_dims(x, 0)
    if first:
        x = shaping.moveaxis(x, 1, -1)
    lengths = list(x.shape[1:-1])
    pads = windows.padding_of(padding, lengths, window, steps, dilations)
    windows.check_fits("extract_patches", lengths, window, pads, dilations)
    if any(pair != (0, 0) for pair in pads):
        x = shaping.pad(x, [(0, 0), *pads, (0, 0)])
    for i in range(rank):
        # The axis splits in two: the number of the piece, and the place in it.
        x = windows.cut(x, 2 * i + 1, window[i], steps[i], dilations[i])
    pieces, within = range(1, 2 * rank, 2), range(2, 2 * rank + 1, 2)
    x = shaping.transpose(x, (0, *pieces, *within, 2 * rank + 1))
    x = shaping.reshape(x, (*x.shape[: rank + 1], int(np.prod(x.shape[rank + 1 :]))))
    if first:
        x = shaping.moveaxis(x, -1, 1)
    return shaping.squeeze(x, 0) if is_single else x

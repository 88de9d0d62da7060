"""Borders added to images and cut from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import config
from kerascnn.ops import dispatch, shaping
from kerascnn.ops.image import common
from kerascnn.symbolic.operation import op

__all__ = ["crop_images", "crop_to_window", "pad_images"]


def _check_not_negative(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is not None and value < 0:
            raise ValueError(f"{name} must be >= 0. Received: {name}={value}")


def _complete(
    images: Any, given: dict[str, Any], data_format: str, grows: bool
) -> dict[int, tuple[int, int, int]]:
    """Both margins and the new size of each axis of the images, of which two are given.

    Args:
        images: The tensor that grows or shrinks by the margins.
        given: Top, left, bottom, right, height and width by the names that errors show; what is
            None is filled in.
        data_format: "channels_last" or "channels_first".
        grows: Whether margins are added; else they are cut off.
    """
    top, left, bottom, right, height, width = given
    sides = ((top, bottom, height), (left, right, width))
    for side in sides:
        if [given[name] for name in side].count(None) != 1:
            shown = ", ".join(f"{name}={given[name]}" for name in side)
            raise ValueError(f"Must specify exactly two of {', '.join(side)}. Received: {shown}")
    _check_not_negative(given)
    sign = 1 if grows else -1
    axes = (len(images.shape) + axis for axis in common.spatial_axes(data_format))
    complete = {}
    for axis, (before, after, target) in zip(axes, sides, strict=True):
        size = images.shape[axis]
        if given[target] is None:
            given[target] = size + sign * (given[before] + given[after])
        for one, other in ((before, after), (after, before)):
            if given[one] is None:
                given[one] = sign * (given[target] - size) - given[other]
        complete[axis] = (int(given[before]), int(given[after]), int(given[target]))
    _check_not_negative(given)
    return complete


@op
def pad_images(
    images: Any,
    top_padding: int | None = None,
    left_padding: int | None = None,
    bottom_padding: int | None = None,
    right_padding: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> Any:
    """Images with zeros around them.

    For the height two of top, bottom and the new height are given, for the width two of left, right
    and the new width; what is left follows.

    Args:
        images: (height, width, channels) or (n, height, width, channels) of any dtype; with
            "channels_first" the channels come before the height.
        top_padding: Rows above.
        left_padding: Columns on the left.
        bottom_padding: Rows below.
        right_padding: Columns on the right.
        target_height: The new height.
        target_width: The new width.
        data_format: By default the configured one.

    Returns:
        Images of the new size in the same dtype.

    Raises:
        ValueError: where not exactly two are given, or one is or comes out negative, and for
            another number of axes.

    Example:

    >>> from kerascnn import ops
    >>> ops.image.pad_images(ops.ones((2, 3, 1)), 1, 2, target_height=6, target_width=6).shape
    (6, 6, 1)
    """
    data_format = config.standardize_data_format(data_format)
    images = dispatch.convert(images)
    common.check_rank(images)
    given: dict[str, Any] = {
        "top_padding": top_padding,
        "left_padding": left_padding,
        "bottom_padding": bottom_padding,
        "right_padding": right_padding,
        "target_height": target_height,
        "target_width": target_width,
    }
    margins = [(0, 0) for _ in images.shape]
    for axis, (before, after, _) in _complete(images, given, data_format, grows=True).items():
        margins[axis] = (before, after)
    return shaping.pad(images, margins) if np.any(margins) else images


@op
def crop_images(
    images: Any,
    top_cropping: int | None = None,
    left_cropping: int | None = None,
    bottom_cropping: int | None = None,
    right_cropping: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> Any:
    """A part of images.

    For the height two of top, bottom and the new height are given, for the width two of left, right
    and the new width; what is left follows.

    Args:
        images: (height, width, channels) or (n, height, width, channels) of any dtype; with
            "channels_first" the channels come before the height.
        top_cropping: Rows that are cut off above.
        left_cropping: Columns that are cut off on the left.
        bottom_cropping: Rows that are cut off below.
        right_cropping: Columns that are cut off on the right.
        target_height: The new height.
        target_width: The new width.
        data_format: By default the configured one.

    Returns:
        Images of the new size in the same dtype.

    Raises:
        ValueError: where not exactly two are given, or one is or comes out negative, and for
            another number of axes.

    Example:

    >>> from kerascnn import ops
    >>> ops.image.crop_images(ops.ones((5, 6, 1)), 1, 2, target_height=3, target_width=4).shape
    (3, 4, 1)
    """
    data_format = config.standardize_data_format(data_format)
    images = dispatch.convert(images)
    common.check_rank(images)
    given: dict[str, Any] = {
        "top_cropping": top_cropping,
        "left_cropping": left_cropping,
        "bottom_cropping": bottom_cropping,
        "right_cropping": right_cropping,
        "target_height": target_height,
        "target_width": target_width,
    }
    complete = _complete(images, given, data_format, grows=False)
    return common.window(images, {axis: (top, size) for axis, (top, _, size) in complete.items()})


def crop_to_window(
    images: Any, top: int, left: int, height: int, width: int, data_format: str
) -> Any:
    """The part of images that begins at (top, left).

    It is `crop_images` without its checks, for callers that have made them: what lies outside of
    the images is left out.

    Args:
        images: (height, width, channels) or (n, height, width, channels), or with the channels
            first; a tensor of any dtype.
        top: The first row.
        left: The first column.
        height: Rows of the part.
        width: Columns of the part.
        data_format: "channels_last" or "channels_first".

    Returns:
        Images of the new size in the same dtype.

    Raises:
        ValueError: for numbers below 0, and what are no images.

    Example:

    >>> from kerascnn import ops
    >>> ops.image.crop_to_window(ops.ones((5, 6, 1)), 1, 2, 3, 4, "channels_last").shape
    (3, 4, 1)
    """
    images = dispatch.convert(images)
    common.check_rank(images)
    _check_not_negative({"top": top, "left": left, "height": height, "width": width})
    rows, columns = (len(images.shape) + axis for axis in common.spatial_axes(data_format))
    return common.window(images, {rows: (top, height), columns: (left, width)})

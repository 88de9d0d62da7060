"""Borders added to images and cut from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import config
from kerascnn.ops import dispatch, shaping
from kerascnn.ops.image import common
from kerascnn.symbolic.operation import op

__all__ = ["crop_images", "crop_to_window", "pad_images"]


def _check_margins(values: dict[str, int | None]) -> None:
    top, left, bottom, right, height, width = values
    for trio in ((top, bottom, height), (left, right, width)):
        if [values[name] for name in trio].count(None) != 1:
            shown = ", ".join(f"{name}={values[name]}" for name in trio)
            raise ValueError(f"Must specify exactly two of {', '.join(trio)}. Received: {shown}")
    _check_not_negative(values)


def _check_not_negative(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is not None and value < 0:
            raise ValueError(f"{name} must be >= 0. Received: {name}={value}")


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
    """Images with zeros around them; of each side's two margins and its new size two are given.

    Raises:
        ValueError: where not exactly two are given, or one comes out negative.

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
    _check_margins(given)
    rows, columns = (len(images.shape) + axis for axis in common.spatial_axes(data_format))
    margins = [[0, 0] for _ in images.shape]
    for axis, before, after, target in (
        (rows, "top_padding", "bottom_padding", target_height),
        (columns, "left_padding", "right_padding", target_width),
    ):
        size = images.shape[axis]
        if given[before] is None:
            given[before] = target - given[after] - size
        if given[after] is None:
            given[after] = target - given[before] - size
        margins[axis] = [int(given[before]), int(given[after])]
    _check_not_negative(given)
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
    """A part of images; of each side's two margins and its new size two are given.

    Raises:
        ValueError: where not exactly two are given, or one comes out negative.

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
    _check_margins(given)
    rows, columns = (len(images.shape) + axis for axis in common.spatial_axes(data_format))
    parts = {}
    for axis, before, after, target in (
        (rows, "top_cropping", "bottom_cropping", "target_height"),
        (columns, "left_cropping", "right_cropping", "target_width"),
    ):
        size = images.shape[axis]
        if given[before] is None:
            given[before] = size - given[target] - given[after]
        if given[target] is None:
            given[target] = size - given[after] - given[before]
        parts[axis] = (int(given[before]), int(given[target]))
        if given[after] is None:
            given[after] = size - given[before] - given[target]
    _check_not_negative(given)
    return common.window(images, parts)


def crop_to_window(
    images: Any, top: int, left: int, height: int, width: int, data_format: str
) -> Any:
    """The part of images that begins at (top, left)."""
    rows, columns = (len(images.shape) + axis for axis in common.spatial_axes(data_format))
    return common.window(images, {rows: (top, height), columns: (left, width)})

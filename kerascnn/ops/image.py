"""Functions of images, under the names of `keras.ops.image`.

Images are (height, width, channels) or (n, height, width, channels); with "channels_first" the
channels come before the height.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import config, dtypes
from kerascnn.ops import dispatch, elementwise, linalg, resampling, shaping
from kerascnn.symbolic.operation import op

__all__ = ["affine_transform", "crop_images", "pad_images", "resize", "rgb_to_grayscale"]

# Up to so many pixels per new pixel are gathered and added, which is exact and moves little; more
# of them are a product with the matrix of weights.
_MOST_TAPS = 4
# Up to so many numbers of a pixel are written out with the pixels of a row.
_SHORT_ROW = 16

FILL_MODES = ("constant", "nearest", "wrap", "mirror", "reflect")
AFFINE_INTERPOLATIONS = ("nearest", "bilinear")


def _check_rank(images: Any) -> None:
    if len(images.shape) not in (3, 4):
        raise ValueError(
            "Invalid images rank: expected rank 3 (single image) or rank 4 (batch of images). "
            f"Received input with shape: images.shape={tuple(images.shape)}"
        )


def spatial_axes(data_format: str) -> tuple[int, int]:
    """The axes of height and width, counted from the end."""
    return (-3, -2) if data_format == "channels_last" else (-2, -1)


def _rounded(x: Any, dtype: str) -> Any:
    """The computed pixels in the images' own dtype; integers rounded and kept in their range."""
    if not dtypes.is_integer(dtype):
        return dispatch.convert(x, dtype)
    limits = np.iinfo(dtype)
    x = elementwise.round(x)
    # Only where the type is narrow: float32 cannot hold the limits of the wider ones.
    if limits.bits <= 16:
        x = elementwise.clip(x, float(limits.min), float(limits.max))
    return dispatch.convert(x, dtype)


@op
def rgb_to_grayscale(images: Any, data_format: str | None = None) -> Any:
    """The brightness of colors, 0.2989 red + 0.587 green + 0.114 blue; one channel stays as it is.

    Args:
        images: Of 3 channels, or 1.
        data_format: By default the configured one.

    Raises:
        ValueError: for another number of axes or channels.

    Example:

    >>> from kerascnn import ops
    >>> ops.image.rgb_to_grayscale(ops.ones((2, 4, 4, 3))).shape
    (2, 4, 4, 1)
    """
    data_format = config.standardize_data_format(data_format)
    images = dispatch.convert(images)
    _check_rank(images)
    axis = len(images.shape) + (-1 if data_format == "channels_last" else -3)
    if images.shape[axis] not in (1, 3):
        raise ValueError(
            "Invalid channel size: expected 3 (RGB) or 1 (Grayscale). Received input with shape: "
            f"images.shape={tuple(images.shape)}"
        )
    if images.shape[axis] == 1:
        return images
    dtype = images.dtype
    if not dtypes.is_float(dtype):
        images = dispatch.convert(images, dtypes.float_result_type(dtype))
    red, green, blue = shaping.split(images, 3, axis)
    gray = elementwise.add(
        elementwise.add(elementwise.multiply(red, 0.2989), elementwise.multiply(green, 0.587)),
        elementwise.multiply(blue, 0.114),
    )
    return dispatch.convert(gray, dtype)


@op
def resize(
    images: Any,
    size: Sequence[int],
    interpolation: str = "bilinear",
    antialias: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    fill_mode: str = "constant",
    fill_value: float = 0.0,
    data_format: str | None = None,
) -> Any:
    """Images of another size.

    Args:
        images: Of any dtype; integers are rounded at the end.
        size: The new height and width.
        interpolation: "bilinear", "nearest", "bicubic", "lanczos3" or "lanczos5".
        antialias: Whether the window grows where the image shrinks (not for "nearest").
        crop_to_aspect_ratio: Whether to take the largest centered part that has the proportions of
            `size` first.
        pad_to_aspect_ratio: Whether to add borders up to the proportions of `size` first.
        fill_mode: Only "constant".
        fill_value: What these borders hold.
        data_format: By default the configured one.

    Raises:
        ValueError: for another interpolation, fill mode, number of axes or length of `size`.

    Source: the conventions of PyTorch's interpolate (half-pixel centers, "nearest-exact", a =
    -0.75 for the cubic and -0.5 with antialiasing); Lanczos as in jax.image.resize.

    Example:

    >>> from kerascnn import ops
    >>> ops.image.resize(ops.ones((2, 4, 4, 3)), (6, 8)).shape
    (2, 6, 8, 3)
    """
    data_format = config.standardize_data_format(data_format)
    if interpolation not in resampling.METHODS:
        raise ValueError(
            "Invalid value for argument `interpolation`. Expected of one "
            f"{resampling.METHODS}. Received: interpolation={interpolation}"
        )
    if fill_mode != "constant":
        raise ValueError(
            "Invalid value for argument `fill_mode`. Only `'constant'` is supported. Received: "
            f"fill_mode={fill_mode}"
        )
    if pad_to_aspect_ratio and crop_to_aspect_ratio:
        raise ValueError(
            "Only one of `pad_to_aspect_ratio` & `crop_to_aspect_ratio` can be `True`."
        )
    if len(size) != 2:
        raise ValueError(
            f"Expected `size` to be a tuple of 2 integers. Received: size={tuple(size)}"
        )
    images = dispatch.convert(images)
    _check_rank(images)
    dtype = images.dtype
    rows, columns = (len(images.shape) + axis for axis in spatial_axes(data_format))
    sizes = (int(size[0]), int(size[1]))
    height, width = images.shape[rows], images.shape[columns]
    if crop_to_aspect_ratio:
        top, left, height, width = resampling.crop_box(height, width, *sizes)
        images = _window(images, {rows: (top, height), columns: (left, width)})
    elif pad_to_aspect_ratio:
        border = resampling.pad_margins(height, width, *sizes)
        margins = [[0, 0] for _ in images.shape]
        margins[rows], margins[columns] = [border[0]] * 2, [border[1]] * 2
        if any(border):
            images = shaping.pad(images, margins, constant_values=fill_value)
    computed = images if dtype in ("float32", "float64") else dispatch.convert(images, "float32")
    for axis, new in ((rows, sizes[0]), (columns, sizes[1])):
        computed = _resample(computed, axis, new, interpolation, antialias)
    if dtype == "uint8" and interpolation != "nearest":
        computed = elementwise.clip(computed, 0.0, 255.0)
    return _rounded(computed, dtype)


def _window(x: Any, parts: dict[int, tuple[int, int]]) -> Any:
    """So many elements from a start on along some axes."""
    key = [slice(None)] * len(x.shape)
    for axis, (start, size) in parts.items():
        key[axis] = slice(start, start + size)
    return shaping.get_item(x, tuple(key))


def _resample(x: Any, axis: int, new: int, interpolation: str, antialias: bool) -> Any:
    """One axis brought to another size."""
    size = x.shape[axis]
    if size == new:
        return x
    matrix = resampling.weights(size, new, interpolation, bool(antialias))
    indices, shares = resampling.taps(matrix)
    if indices.shape[1] == 1:
        return shaping.take(x, indices[:, 0], axis)
    if indices.shape[1] > _MOST_TAPS:
        last = shaping.moveaxis(x, axis, -1)
        factor = dispatch.convert(matrix.T.astype(dtypes.numpy_dtype(x.dtype)), like=x)
        return shaping.moveaxis(linalg.matmul(last, factor), -1, axis)
    result = None
    # Along the last axes the weights are written out for whole rows: kernels are fastest on those.
    inner = math.prod(x.shape[axis + 1 :])
    repeats = inner if inner <= _SHORT_ROW else 1
    seen = (*x.shape[:axis], new, *x.shape[axis + 1 :])
    rows = (*x.shape[:axis], new * repeats, *(() if repeats == inner else (inner,)))
    along = [new * repeats if a == axis else 1 for a in range(len(rows))]
    for tap in range(indices.shape[1]):
        share = shares[:, tap].astype(dtypes.numpy_dtype(x.dtype)).repeat(repeats).reshape(along)
        part = shaping.reshape(shaping.take(x, indices[:, tap], axis), rows)
        part = elementwise.multiply(part, dispatch.convert(share, like=x))
        result = part if result is None else elementwise.add(result, part)
    return shaping.reshape(result, seen)


@op
def affine_transform(
    images: Any,
    transform: Any,
    interpolation: str = "bilinear",
    fill_mode: str = "constant",
    fill_value: float = 0,
    data_format: str | None = None,
) -> Any:
    """Images whose pixel at (x, y) is the input's at (a0 x + a1 y + a2, b0 x + b1 y + b2).

    Args:
        images: Of any dtype; integers are rounded at the end.
        transform: (a0, a1, a2, b0, b1, b2, c0, c1), one for all images or one for each, (n, 8).
            c0 and c1, which would make it a perspective, are taken as 0.
        interpolation: "bilinear" or "nearest".
        fill_mode: What lies outside: "constant", the "nearest" pixel, the image again ("wrap"), or
            its mirror image, with the border repeated ("reflect") or not ("mirror").
        fill_value: For "constant".
        data_format: By default the configured one.

    Raises:
        ValueError: for another interpolation, fill mode, or number of axes.

    Example:

    >>> from kerascnn import ops
    >>> image = ops.reshape(ops.arange(3.0), (1, 3, 1))
    >>> ops.image.affine_transform(image, [1.0, 0, 1, 0, 1, 0, 0, 0]).numpy().ravel().tolist()
    [1.0, 2.0, 0.0]
    """
    data_format = config.standardize_data_format(data_format)
    for name, value, known in (
        ("interpolation", interpolation, AFFINE_INTERPOLATIONS),
        ("fill_mode", fill_mode, FILL_MODES),
    ):
        if value not in known:
            raise ValueError(
                f"Invalid value for argument `{name}`. Expected of one {set(known)}. Received: "
                f"{name}={value}"
            )
    images = dispatch.convert(images)
    transform = dispatch.convert(transform, like=images)
    _check_rank(images)
    if len(transform.shape) not in (1, 2) or transform.shape[-1] != 8:
        raise ValueError(
            "Invalid transform rank: expected rank 1 (single transform) or rank 2 (batch of "
            "transforms), of 8 numbers each. Received input with shape: "
            f"transform.shape={tuple(transform.shape)}"
        )
    if transform.dtype not in ("float32", "float64"):
        transform = dispatch.convert(transform, "float32")
    if len(transform.shape) == 1:
        transform = shaping.expand_dims(transform, 0)
    is_single = len(images.shape) == 3
    if is_single:
        images = shaping.expand_dims(images, 0)
    if data_format == "channels_first":
        images = shaping.transpose(images, (0, 2, 3, 1))
    if transform.shape[0] not in (1, images.shape[0]):
        raise ValueError(
            f"affine_transform: {transform.shape[0]} transforms for {images.shape[0]} images."
        )
    result = _sampled(
        images, *_coordinates(images, transform), interpolation, fill_mode, fill_value
    )
    if data_format == "channels_first":
        result = shaping.transpose(result, (0, 3, 1, 2))
    return shaping.squeeze(result, 0) if is_single else result


def _coordinates(images: Any, transform: Any) -> tuple[Any, Any]:
    """Where each new pixel comes from: y and x, both (n or 1, height, width)."""
    height, width = images.shape[1:3]
    dtype = dtypes.numpy_dtype(transform.dtype)
    y = dispatch.convert(np.arange(height, dtype=dtype).reshape(1, height, 1), like=images)
    x = dispatch.convert(np.arange(width, dtype=dtype).reshape(1, 1, width), like=images)
    a0, a1, a2, b0, b1, b2 = (
        shaping.expand_dims(part, -1) for part in shaping.split(transform, 8, axis=1)[:6]
    )
    from_x = elementwise.add(
        elementwise.add(elementwise.multiply(y, a1), elementwise.multiply(x, a0)), a2
    )
    from_y = elementwise.add(
        elementwise.add(elementwise.multiply(y, b1), elementwise.multiply(x, b0)), b2
    )
    return from_y, from_x


def _sampled(
    images: Any, y: Any, x: Any, interpolation: str, fill_mode: str, fill_value: float
) -> Any:
    """The pixels at positions (y, x) of images (n, height, width, channels)."""
    dtype = images.dtype
    batch, height, width, channels = images.shape
    flat = shaping.reshape(images, (batch * height * width, channels))
    first = np.arange(batch, dtype="int32").reshape(batch, 1, 1) * (height * width)
    first = dispatch.convert(first, like=images)
    wide = dtype if dtype in ("float32", "float64") else "float32"
    if dtypes.is_integer(dtype):
        fill_value = int(fill_value)
    result = None
    for row, row_inside, row_share in _neighbors(y, height, interpolation, fill_mode):
        for column, column_inside, column_share in _neighbors(x, width, interpolation, fill_mode):
            place = elementwise.add(elementwise.multiply(row, width), column)
            place = elementwise.add(place, first)
            pixel = dispatch.apply_one("gather", [flat, place], {"axis": 0})
            pixel = dispatch.convert(pixel, wide)
            if row_inside is not None:
                inside = elementwise.logical_and(row_inside, column_inside)
                pixel = elementwise.where(shaping.expand_dims(inside, -1), pixel, fill_value)
            if row_share is not None:
                share = dispatch.convert(elementwise.multiply(row_share, column_share), wide)
                pixel = elementwise.multiply(pixel, shaping.expand_dims(share, -1))
            result = pixel if result is None else elementwise.add(result, pixel)
    return _rounded(result, dtype)


def _neighbors(
    position: Any, size: int, interpolation: str, fill_mode: str
) -> list[tuple[Any, Any, Any]]:
    """For each pixel that a position needs along an axis: index, whether it is inside, weight."""
    if interpolation == "nearest":
        places = [(elementwise.round(position), None)]
    else:
        lower = elementwise.floor(position)
        upper_share = elementwise.subtract(position, lower)
        lower_share = elementwise.subtract(1.0, upper_share)
        places = [(lower, lower_share), (elementwise.add(lower, 1.0), upper_share)]
    found = []
    for at, share in places:
        inside = None
        if fill_mode == "constant":
            inside = elementwise.logical_and(
                elementwise.greater_equal(at, 0.0), elementwise.less(at, float(size))
            )
        # Whole numbers in floating point, exact far beyond any image's size.
        index = dispatch.convert(_inside(at, size, fill_mode), "int32")
        found.append((index, inside, share))
    return found


def _inside(at: Any, size: int, fill_mode: str) -> Any:
    """The pixel that stands for one outside of the image."""
    if fill_mode == "wrap":
        at = elementwise.mod(at, float(size))
    elif fill_mode == "mirror":
        at = _mirrored(at, size - 1)
    elif fill_mode == "reflect":
        # Mirrored at the edges between pixels, in half pixels, so that it stays in whole numbers.
        twice = elementwise.add(elementwise.multiply(at, 2.0), 1.0)
        halves = elementwise.subtract(_mirrored(twice, 2 * size), 1.0)
        at = elementwise.floor(elementwise.multiply(halves, 0.5))
    return elementwise.clip(at, 0.0, float(size - 1))


def _mirrored(at: Any, period: int) -> Any:
    """The triangular wave that is x from 0 to `period`, and falls after it."""
    if period == 0:
        return elementwise.multiply(at, 0.0)
    around = elementwise.mod(elementwise.add(at, float(period)), 2.0 * period)
    return elementwise.absolute(elementwise.subtract(around, float(period)))


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
    _check_rank(images)
    given: dict[str, Any] = {
        "top_padding": top_padding,
        "left_padding": left_padding,
        "bottom_padding": bottom_padding,
        "right_padding": right_padding,
        "target_height": target_height,
        "target_width": target_width,
    }
    _check_margins(given)
    rows, columns = (len(images.shape) + axis for axis in spatial_axes(data_format))
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
    _check_rank(images)
    given: dict[str, Any] = {
        "top_cropping": top_cropping,
        "left_cropping": left_cropping,
        "bottom_cropping": bottom_cropping,
        "right_cropping": right_cropping,
        "target_height": target_height,
        "target_width": target_width,
    }
    _check_margins(given)
    rows, columns = (len(images.shape) + axis for axis in spatial_axes(data_format))
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
    return _window(images, parts)


def crop_to_window(
    images: Any, top: int, left: int, height: int, width: int, data_format: str
) -> Any:
    """The part of images that begins at (top, left)."""
    rows, columns = (len(images.shape) + axis for axis in spatial_axes(data_format))
    return _window(images, {rows: (top, height), columns: (left, width)})


def smart_resize(images: Any, size: Sequence[int], interpolation: str, data_format: str) -> Any:
    """The largest centered part with the proportions of `size`, resized to it."""
    return resize(images, size, interpolation, crop_to_aspect_ratio=True, data_format=data_format)

"""Images of another size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import config, dtypes
from kerascnn.ops import (
    dispatch,
    elementwise,
    matrix_products,
    reduction,
    resampling,
    rounding,
    shaping,
    trigonometry,
)
from kerascnn.ops.image import common
from kerascnn.symbolic.operation import op

__all__ = ["resize", "scale_and_translate", "smart_resize"]


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
        images: (height, width, channels) or (n, height, width, channels), or with the channels
            first. Of any dtype; integers are rounded at the end.
        size: The new height and width.
        interpolation: "bilinear", "nearest", "bicubic", "lanczos3" or "lanczos5".
        antialias: Whether the window grows where the image shrinks (not for "nearest").
        crop_to_aspect_ratio: Whether to take the largest centered part that has the proportions of
            `size` first.
        pad_to_aspect_ratio: Whether to add borders up to the proportions of `size` first.
        fill_mode: Only "constant".
        fill_value: What these borders hold.
        data_format: By default the configured one.

    Returns:
        Images of the new size in the same dtype. The cubic and Lanczos windows can overshoot; uint8
        stays from 0 to 255.

    Raises:
        ValueError: for another interpolation, fill mode, number of axes or length of `size`, and
            for both a crop and borders.

    Source: the conventions of PyTorch's interpolate (half-pixel centers, "nearest-exact", a =
    -0.75 for the cubic and -0.5 with antialiasing); Lanczos as in jax.image.resize.

    Example:

    >>> from kerascnn import ops
    >>> ops.image.resize(ops.ones((2, 4, 4, 3)), (6, 8)).shape
    (2, 6, 8, 3)
    >>> row = ops.reshape([0.0, 4.0], (1, 2, 1))
    >>> ops.image.resize(row, (1, 4)).numpy().ravel().tolist()
    [0.0, 1.0, 3.0, 4.0]
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
    common.check_rank(images)
    dtype = images.dtype
    rows, columns = (len(images.shape) + axis for axis in common.spatial_axes(data_format))
    sizes = (int(size[0]), int(size[1]))
    height, width = images.shape[rows], images.shape[columns]
    if crop_to_aspect_ratio:
        top, left, height, width = resampling.crop_box(height, width, *sizes)
        images = common.window(images, {rows: (top, height), columns: (left, width)})
    elif pad_to_aspect_ratio:
        border = resampling.pad_margins(height, width, *sizes)
        margins = [[0, 0] for _ in images.shape]
        margins[rows], margins[columns] = [border[0]] * 2, [border[1]] * 2
        if any(border):
            images = shaping.pad(images, margins, constant_values=fill_value)
    computed = images if dtypes.is_float(dtype) else dispatch.convert(images, "float32")
    if (height, width) != sizes:
        computed = _resample(computed, sizes, interpolation, bool(antialias), rows)
    if dtype == "uint8" and interpolation != "nearest":
        computed = elementwise.clip(computed, 0.0, 255.0)
    return common.rounded(computed, dtype)


def _resample(x: Any, sizes: tuple[int, int], method: str, antialias: bool, rows: int) -> Any:
    """Resizes axis `rows` and the one behind it."""
    attributes = {"size": list(sizes), "method": method, "antialias": antialias}
    if len(x.shape) == 4 and rows == 1:
        return dispatch.apply_one("resize2d", [x], attributes)
    # The core takes (n, height, width, channels). Channels in front are images of their own.
    shape = tuple(x.shape)
    before, behind = shape[:rows], shape[rows + 2 :]
    images = (math.prod(before), *shape[rows : rows + 2], math.prod(behind))
    resized = dispatch.apply_one("resize2d", [shaping.reshape(x, images)], attributes)
    return shaping.reshape(resized, (*before, *sizes, *behind))


# `scale_and_translate` calls the kernels by these names.
_KERNELS = {
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), "linear"),
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), "cubic"),
    "lanczos3": "lanczos3",
    "lanczos5": "lanczos5",
}


@op
def scale_and_translate(
    images: Any,
    output_shape: Sequence[int],
    scale: Any,
    translation: Any,
    spatial_dims: Sequence[int],
    method: str,
    antialias: bool = True,
) -> Any:
    """Axes stretched and moved: what is at x goes to x * scale + translation.

    Pixels are areas with their centers at 0.5, 1.5, ...; where nothing comes from inside of the
    input there is 0.

    Args:
        images: A tensor of any axes; integers are rounded at the end and kept between the smallest
            and the largest of the input.
        output_shape: The sizes of all axes of the result.
        scale: A factor for each of `spatial_dims`, (k,); can be a value of the step.
        translation: A shift for each of them in pixels of the result, (k,); likewise.
        spatial_dims: The axes that this is about.
        method: "linear" (or "bilinear", "trilinear", "triangle"), "cubic" ("bicubic", "tricubic"),
            "lanczos3" or "lanczos5".
        antialias: Whether the window grows where an axis shrinks.

    Returns:
        A tensor of shape `output_shape` and the dtype of `images`.

    Raises:
        ValueError: for another method, or numbers of axes that don't fit each other.

    Source: the conventions of jax.image.scale_and_translate; Keys' cubic with a = -0.5.

    Example:

    >>> from kerascnn import ops
    >>> x = ops.reshape(ops.arange(4.0), (1, 4))
    >>> ops.image.scale_and_translate(x, (1, 4), [1.0], [1.0], (1,), "linear").numpy().tolist()
    [[0.0, 0.0, 1.0, 2.0]]
    """
    common.check_choice("method", method, tuple(_KERNELS))
    images = dispatch.convert(images)
    scale, translation = (dispatch.convert(x, like=images) for x in (scale, translation))
    scale, translation = dispatch.operands(scale, translation, result=dtypes.float_result_type)
    if scale.dtype != "float64":
        scale, translation = (dispatch.convert(x, "float32") for x in (scale, translation))
    rank, count = len(images.shape), len(spatial_dims)
    if len(output_shape) != rank or any(tuple(x.shape) != (count,) for x in (scale, translation)):
        raise ValueError(
            "scale_and_translate: output_shape needs a size for each axis of the images, scale and "
            "translation a number for each of spatial_dims. Received: "
            f"images.shape={tuple(images.shape)}, output_shape={tuple(output_shape)}, "
            f"scale.shape={tuple(scale.shape)}, translation.shape={tuple(translation.shape)}, "
            f"spatial_dims={tuple(spatial_dims)}"
        )
    if not count:
        return images
    dtype = images.dtype
    result = images if dtypes.is_float(dtype) else dispatch.convert(images, "float32")
    for i, dim in enumerate(spatial_dims):
        axis = dim % rank
        weights = _moving_weights(
            images.shape[axis], output_shape[axis], scale[i], translation[i], method, antialias
        )
        last = shaping.moveaxis(result, axis, -1)
        last = matrix_products.matmul(last, dispatch.convert(weights, result.dtype))
        result = shaping.moveaxis(last, -1, axis)
    if dtypes.is_float(dtype):
        return result
    limits = (dispatch.convert(f(images), "float32") for f in (reduction.min, reduction.max))
    return dispatch.convert(elementwise.clip(rounding.round(result), *limits), dtype)


def _moving_weights(
    size: int, new_size: int, scale: Any, translation: Any, method: str, antialias: bool
) -> Any:
    """Returns the matrix (size, new_size) for an axis, whose columns sum to 1, or are 0."""
    kind = dtypes.numpy_dtype(scale.dtype)
    centers = dispatch.convert(np.arange(new_size, dtype=kind) + kind.type(0.5), like=scale)
    pixels = dispatch.convert(np.arange(size, dtype=kind)[:, None], like=scale)
    places = elementwise.divide(elementwise.subtract(centers, translation), scale)
    places = elementwise.subtract(places, 0.5)
    distances = elementwise.absolute(elementwise.subtract(places, pixels))
    if antialias:
        distances = elementwise.divide(
            distances, elementwise.maximum(elementwise.reciprocal(scale), 1.0)
        )
    weights = _kernel(distances, _KERNELS[method])
    total = reduction.sum(weights, 0, True)
    # At the border, kernels with negative parts can sum to nearly nothing.
    is_there = elementwise.greater(elementwise.absolute(total), 1000.0 * 2.0**-23)
    inside = elementwise.logical_and(
        elementwise.greater_equal(places, -0.5), elementwise.less_equal(places, size - 0.5)
    )
    share = elementwise.divide(weights, elementwise.where(is_there, total, 1.0))
    return elementwise.where(elementwise.logical_and(is_there, inside), share, 0.0)


def _kernel(x: Any, name: str) -> Any:
    """Returns the weight of a pixel at a distance of 0 or more."""
    if name == "linear":
        return elementwise.maximum(elementwise.subtract(1.0, x), 0.0)
    if name == "cubic":
        near = (1.5 * x - 2.5) * x * x + 1.0
        far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
        far = elementwise.where(elementwise.less(x, 2.0), far, 0.0)
        return elementwise.where(elementwise.less(x, 1.0), near, far)
    radius = 3.0 if name == "lanczos3" else 5.0
    wave = elementwise.multiply(
        trigonometry.sinc(x), trigonometry.sinc(elementwise.divide(x, radius))
    )
    return elementwise.where(elementwise.less_equal(x, radius), wave, 0.0)


def smart_resize(images: Any, size: Sequence[int], interpolation: str, data_format: str) -> Any:
    """Resizes the largest centered part with the proportions of `size`; nothing gets distorted.

    Args:
        images: As for `resize`.
        size: The new height and width.
        interpolation: As for `resize`.
        data_format: "channels_last" or "channels_first".

    Returns:
        Images of the new size in the same dtype.

    Raises:
        ValueError: as `resize`.

    Example:

    >>> from kerascnn import ops
    >>> ops.image.smart_resize(ops.ones((4, 8, 3)), (2, 2), "bilinear", "channels_last").shape
    (2, 2, 3)
    """
    return resize(images, size, interpolation, crop_to_aspect_ratio=True, data_format=data_format)

"""Filters: smoothing, edges, and the similarity of smoothed images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.ops import convolution, dispatch, elementwise, joining, reduction, shaping
from kerascnn.ops.image import common
from kerascnn.symbolic.operation import op

__all__ = ["gaussian_blur", "sobel_edges", "ssim"]


def _bell(size: int, sigma: Any, like: Any) -> Any:
    """Returns `size` weights with sum 1 that fall off as a normal distribution does."""
    wide = "float64" if like.dtype == "float64" else "float32"
    places = np.arange(size, dtype=wide) - (size - 1) / 2
    steps = elementwise.divide(
        dispatch.convert(places, wide, like=like), dispatch.convert(sigma, wide, like=like)
    )
    heights = elementwise.exp(elementwise.multiply(elementwise.square(steps), -0.5))
    return elementwise.divide(heights, reduction.sum(heights))


def _smoothed(x: Any, rows: Any, columns: Any, padding: str) -> Any:
    """Convolves each channel of (n, h, w, c) along the height, then along the width."""
    for weights, shape in ((rows, (-1, 1, 1, 1)), (columns, (1, -1, 1, 1))):
        kernel = shaping.reshape(dispatch.convert(weights, x.dtype), shape)
        kernel = shaping.broadcast_to(kernel, (*kernel.shape[:2], x.shape[-1], 1))
        x = convolution.depthwise_conv(x, kernel, padding=padding, data_format="channels_last")
    return x


@op
def gaussian_blur(
    images: Any,
    kernel_size: Sequence[int] = (3, 3),
    sigma: Any = (1.0, 1.0),
    data_format: str | None = None,
) -> Any:
    """Images smoothed by the weights of a normal distribution; beyond the border there is 0.

    Args:
        images: Of any dtype; integers are rounded at the end.
        kernel_size: How many pixels count, along the width and along the height.
        sigma: Standard deviations in pixels, along the width and along the height; they can be
            values of the step.
        data_format: By default the configured one.

    Returns:
        Images of the same shape and dtype.

    Raises:
        ValueError: for another number of axes, and other than two sizes or deviations.

    Example:

    >>> from kerascnn import ops
    >>> ops.image.gaussian_blur(ops.ones((2, 8, 9, 3)), (5, 5), (1.5, 1.5)).shape
    (2, 8, 9, 3)
    """
    images = dispatch.convert(images)
    common.check_rank(images)
    if len(kernel_size) != 2 or any(int(size) < 1 for size in kernel_size):
        raise ValueError(
            "gaussian_blur: `kernel_size` must be two integers from 1 on. Received: "
            f"kernel_size={kernel_size}"
        )
    shape = (len(sigma),) if isinstance(sigma, (list, tuple)) else getattr(sigma, "shape", None)
    if shape != (2,):
        raise ValueError(f"gaussian_blur: `sigma` must be two numbers. Received: sigma={sigma}")
    width, height = (int(size) for size in kernel_size)
    dtype = images.dtype
    x = images if dtypes.is_float(dtype) else dispatch.convert(images, "float32")
    x = common.as_batch(x, data_format)
    result = _smoothed(x, _bell(height, sigma[1], x), _bell(width, sigma[0], x), "same")
    return common.from_batch(common.rounded(result, dtype), images, data_format)


@op
def sobel_edges(images: Any, data_format: str | None = None) -> Any:
    """How fast the pixels grow downwards and to the right; beyond the border there is 0.

    Args:
        images: A batch of images. Integers are computed and returned as `floatx`.
        data_format: By default the configured one.

    Returns:
        The shape of the images with one more axis at the end, [dy, dx].

    Raises:
        ValueError: for another number of axes.

    Source: Sobel's 3 x 3 operator, https://en.wikipedia.org/wiki/Sobel_operator

    Example:

    >>> from kerascnn import ops
    >>> image = ops.reshape(ops.arange(9.0), (1, 3, 3, 1))
    >>> ops.image.sobel_edges(image)[0, 1, 1, 0].numpy().tolist()
    [24.0, 8.0]
    """
    images = dispatch.convert(images)
    if len(images.shape) != 4:
        raise ValueError(
            "Invalid images rank: expected rank 4 (batch of images). Received: "
            f"images.shape={tuple(images.shape)}"
        )
    if not dtypes.is_float(images.dtype):
        images = dispatch.convert(images, dtypes.float_result_type(images.dtype))
    rows = 1 if common.channel_axis(images, data_format) == 3 else 2
    columns = rows + 1
    margins = [[1, 1] if axis in (rows, columns) else [0, 0] for axis in range(4)]
    padded = shaping.pad(images, margins)
    edges = [
        _smooth(_slope(padded, along), across)
        for along, across in ((rows, columns), (columns, rows))
    ]
    return joining.stack(edges, -1)


def _thirds(x: Any, axis: int) -> list[Any]:
    """Returns the pixels before, at and behind each pixel that has both neighbours."""
    size = x.shape[axis] - 2
    return [common.window(x, {axis: (start, size)}) for start in range(3)]


def _slope(x: Any, axis: int) -> Any:
    before, _, behind = _thirds(x, axis)
    return elementwise.subtract(behind, before)


def _smooth(x: Any, axis: int) -> Any:
    before, here, behind = _thirds(x, axis)
    return elementwise.add(elementwise.add(before, behind), elementwise.multiply(here, 2.0))


@op
def ssim(
    image1: Any,
    image2: Any,
    max_val: float = 1.0,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    data_format: str | None = None,
) -> Any:
    """The structural similarity of images: 1 for equal ones, less for others, down to -1.

    Args:
        image1: An image or several. The result has its dtype: make integers floating first.
        image2: What it is compared with, of the same shape.
        max_val: The largest value that pixels can have.
        filter_size: Height and width of the window that is compared at a time.
        filter_sigma: Standard deviation of the window's weights.
        k1: Keeps quotients of small means from growing.
        k2: Likewise, of small variances.
        data_format: By default the configured one.

    Returns:
        One number for each pair, (n,), or () for single images.

    Raises:
        ValueError: for another number of axes, different shapes, or images smaller than the window.

    Source: Wang et al., "Image Quality Assessment: From Error Visibility to Structural Similarity",
    2004.

    Example:

    >>> from kerascnn import ops
    >>> image = ops.ones((16, 16, 3))
    >>> ops.image.ssim(image, image).numpy().round(4).tolist()
    1.0
    """
    image1 = dispatch.convert(image1)
    image2 = dispatch.convert(image2, like=image1)
    common.check_rank(image1, "image1")
    common.check_rank(image2, "image2")
    if tuple(image1.shape) != tuple(image2.shape):
        raise ValueError(
            "ssim: the images must have one shape. Received: "
            f"image1.shape={tuple(image1.shape)}, image2.shape={tuple(image2.shape)}"
        )
    dtype = image1.dtype
    wide = dtypes.float_result_type(dtype)
    a, b = (common.as_batch(dispatch.convert(x, wide), data_format) for x in (image1, image2))
    weights = _bell(int(filter_size), filter_sigma, a)
    # Variances are computed from images without their means, which loses fewer digits.
    level_a, level_b = (
        dispatch.apply_one("stop_gradient", [reduction.mean(x, (1, 2), True)]) for x in (a, b)
    )
    a, b = elementwise.subtract(a, level_a), elementwise.subtract(b, level_b)
    products = [elementwise.multiply(x, y) for x, y in ((a, a), (b, b), (a, b))]
    # One convolution computes all five maps.
    means = _smoothed(joining.concatenate([a, b, *products], -1), weights, weights, "valid")
    rest_a, rest_b, square_a, square_b, product = joining.split(means, 5, -1)
    variances = (square_a - rest_a * rest_a) + (square_b - rest_b * rest_b)
    covariance = product - rest_a * rest_b
    mean_a, mean_b = rest_a + level_a, rest_b + level_b
    c1, c2 = (k1 * max_val) ** 2, (k2 * max_val) ** 2
    above = (2.0 * mean_a * mean_b + c1) * (2.0 * covariance + c2)
    below = (mean_a * mean_a + mean_b * mean_b + c1) * (variances + c2)
    result = reduction.mean(elementwise.divide(above, below), (1, 2, 3))
    if len(image1.shape) == 3:
        result = shaping.squeeze(result, 0)
    return dispatch.convert(result, dtype)

"""Colors: brightness, and hue, saturation and value."""

from __future__ import annotations

from typing import Any

from kerascnn import dtypes
from kerascnn.ops import dispatch, elementwise, joining
from kerascnn.ops.image import common
from kerascnn.symbolic.operation import op

__all__ = ["hsv_to_rgb", "rgb_to_grayscale", "rgb_to_hsv"]

# This is the distance from 1 to the next number.
_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


@op
def rgb_to_grayscale(images: Any, data_format: str | None = None) -> Any:
    """The brightness of colors, 0.2989 red + 0.587 green + 0.114 blue; one channel stays as it is.

    Args:
        images: (height, width, 3) or (n, height, width, 3), or with the channels first; also of 1
            channel. Of any dtype; fractions are cut off the results of integers.
        data_format: By default the configured one.

    Returns:
        Images of one channel in the same dtype.

    Raises:
        ValueError: for another number of axes or channels.

    Source: the weights of ITU-R BT.601, https://www.itu.int/rec/R-REC-BT.601

    Example:

    >>> from kerascnn import ops
    >>> ops.image.rgb_to_grayscale(ops.ones((2, 4, 4, 3))).shape
    (2, 4, 4, 1)
    """
    images = dispatch.convert(images)
    common.check_rank(images)
    axis = common.channel_axis(images, data_format)
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
    red, green, blue = joining.split(images, 3, axis)
    gray = elementwise.add(
        elementwise.add(elementwise.multiply(red, 0.2989), elementwise.multiply(green, 0.587)),
        elementwise.multiply(blue, 0.114),
    )
    return dispatch.convert(gray, dtype)


def _channels(images: Any, data_format: str | None) -> tuple[list[Any], int]:
    """Returns the three channels of floating images, each with an axis of size 1, and that axis."""
    common.check_rank(images)
    axis = common.channel_axis(images, data_format)
    if not dtypes.is_float(images.dtype):
        raise ValueError(
            f"Invalid images dtype: expected float dtype. Received: images.dtype={images.dtype}. "
            "Convert and scale integers first: ops.cast(images, 'float32') / 255."
        )
    if images.shape[axis] != 3:
        raise ValueError(
            f"Input images must have 3 channels, but received images with {images.shape[axis]} "
            f"channels: images.shape={tuple(images.shape)}"
        )
    return joining.split(images, 3, axis), axis


@op
def rgb_to_hsv(images: Any, data_format: str | None = None) -> Any:
    """Red, green and blue from 0 to 1 as hue, saturation and value, from 0 to 1 too.

    A hue of 0 is red, 1/3 green and 2/3 blue; gray has hue 0, black saturation 0. Numbers smaller
    than the dtype's epsilon count as 0.

    Args:
        images: Floating (height, width, 3) or (n, height, width, 3), or with the channels first.
        data_format: By default the configured one.

    Returns:
        Images of the same shape and dtype.

    Raises:
        ValueError: for integers, another number of axes, or other than 3 channels.

    Source: Smith, "Color Gamut Transform Pairs", SIGGRAPH 1978.

    Example:

    >>> from kerascnn import ops
    >>> ops.image.rgb_to_hsv([[[0.0, 0.5, 0.0]]]).numpy().round(3).tolist()
    [[[0.3330000042915344, 1.0, 0.5]]]
    """
    images = dispatch.convert(images)
    channels, axis = _channels(images, data_format)
    tiny = _EPSILON[images.dtype]
    red, green, blue = (
        elementwise.where(elementwise.less(elementwise.absolute(c), tiny), 0.0, c) for c in channels
    )
    value = elementwise.maximum(elementwise.maximum(red, green), blue)
    least = elementwise.minimum(elementwise.minimum(red, green), blue)
    spread = elementwise.subtract(value, least)
    # Where a denominator does not count it is 1, so that gradients stay finite.
    has_value, has_spread = elementwise.greater(value, 0.0), elementwise.greater(spread, 0.0)
    saturation = elementwise.divide(spread, elementwise.where(has_value, value, 1.0))
    saturation = elementwise.where(has_value, saturation, 0.0)
    scale = elementwise.multiply(elementwise.where(has_spread, spread, 1.0), 6.0)

    def sector(first: Any, second: Any, start: float) -> Any:
        slope = elementwise.divide(elementwise.subtract(first, second), scale)
        return elementwise.add(slope, start)

    hue = elementwise.where(
        elementwise.equal(value, green),
        sector(blue, red, 2.0 / 6.0),
        sector(red, green, 4.0 / 6.0),
    )
    hue = elementwise.where(elementwise.equal(value, red), sector(green, blue, 0.0), hue)
    turn = dispatch.convert(elementwise.less(hue, 0.0), images.dtype)
    hue = elementwise.add(elementwise.where(has_spread, hue, 0.0), turn)
    return joining.concatenate([hue, saturation, value], axis)


@op
def hsv_to_rgb(images: Any, data_format: str | None = None) -> Any:
    """Hue, saturation and value as red, green and blue; the inverse of `rgb_to_hsv`.

    Args:
        images: Floating (height, width, 3) or (n, height, width, 3), or with the channels first.
            Hues repeat after 1.
        data_format: By default the configured one.

    Returns:
        Images of the same shape and dtype.

    Raises:
        ValueError: for integers, another number of axes, or other than 3 channels.

    Source: Smith, "Color Gamut Transform Pairs", SIGGRAPH 1978.

    Example:

    >>> from kerascnn import ops
    >>> ops.image.hsv_to_rgb([[[0.5, 1.0, 0.25]]]).numpy().tolist()
    [[[0.0, 0.25, 0.25]]]
    """
    images = dispatch.convert(images)
    (hue, saturation, value), axis = _channels(images, data_format)
    angle = elementwise.multiply(elementwise.mod(hue, 1.0), 6.0)
    paleness = elementwise.subtract(1.0, saturation)

    def channel(middle: float, sign: float, offset: float) -> Any:
        # This is a trapezoid over the circle of hues: 1 near the channel's hue, 0 on the other
        # side.
        away = elementwise.absolute(elementwise.subtract(angle, middle))
        height = elementwise.add(elementwise.multiply(away, sign), offset)
        share = elementwise.multiply(saturation, elementwise.clip(height, 0.0, 1.0))
        return elementwise.multiply(value, elementwise.add(paleness, share))

    rgb = [channel(3.0, 1.0, -1.0), channel(2.0, -1.0, 2.0), channel(4.0, -1.0, 2.0)]
    return joining.concatenate(rgb, axis)

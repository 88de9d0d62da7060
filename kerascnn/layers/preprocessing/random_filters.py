"""Images that are sharpened or blurred at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import ops
from kerascnn.layers.preprocessing.base import (
    ColorPreprocessing,
    factor_overlapping,
    images_in,
    per_image,
)

# This is the mean of a pixel and its neighbors, from which sharpening moves away.
_SMOOTHING = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], "float32") / 13


class RandomSharpness(ColorPreprocessing):
    """In training, blurs or sharpens each image by a random factor.

    Outside of training nothing happens.

    Args:
        factor: Two numbers between which f is drawn, or one number for 0 to that: 0 gives a
            smoothed image, 0.5 changes nothing and 1 moves as far away from the smoothed image.
        value_range: What comes out is kept in this range.
        data_format: By default the configured one.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for a factor out of range, or a value range that is no pair.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandomSharpness((0.0, 0.0))
    >>> image = keras.ops.array([[[0.0], [26.0], [0.0]]])
    >>> layer(image, training=True).numpy().ravel().tolist()
    [2.0, 10.0, 2.0]
    """

    _factor_bounds = (0, 1)

    def __init__(
        self,
        factor: Any,
        value_range: Sequence[float] = (0, 255),
        data_format: str | None = None,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._set_all(factor, value_range, seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        images = images_in(data)
        return {"factor": self._uniform(images, (self._sizes(images)[0],), *self.factor, seed=seed)}

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        channels = images.shape[self.channel_axis]
        kernel = np.repeat(_SMOOTHING[:, :, None, None], channels, 2)
        smooth = ops.depthwise_conv(
            images, ops.cast(kernel, images.dtype), 1, "same", self.data_format
        )
        factor = ops.cast(per_image(ops.multiply(transformation["factor"], 2.0)), images.dtype)
        way = ops.multiply(ops.subtract(1.0, factor), ops.subtract(smooth, images))
        return self._clipped(ops.add(images, way))


class RandomGaussianBlur(ColorPreprocessing):
    """In training, blurs randomly chosen images by a bell-shaped kernel of random width.

    Outside of training nothing happens. All images of a batch share the kernel, as in Keras.

    Args:
        factor: How likely an image is blurred: a probability that is drawn for each image between
            two bounds, or between 0 and one number.
        kernel_size: The odd number of pixels along width and height of the kernel: one number or
            two.
        sigma: The standard deviation of the bell in pixels, drawn for both directions between two
            bounds, or between 0 and one number; up to 1.
        value_range: What comes out is kept in this range.
        data_format: By default the configured one.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for a factor or sigma out of range, or a kernel size that is even.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandomGaussianBlur(kernel_size=5)
    >>> layer(keras.ops.ones((2, 8, 8, 3)), training=True).shape
    (2, 8, 8, 3)
    """

    _factor_bounds = (0, 1)

    def __init__(
        self,
        factor: Any = 1.0,
        kernel_size: Any = 3,
        sigma: Any = 1.0,
        value_range: Sequence[float] = (0, 255),
        data_format: str | None = None,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._set_factor(factor)
        self.kernel_size = _odd_pair(kernel_size)
        self.sigma = factor_overlapping(sigma, *self._factor_bounds, "sigma")
        self.value_range = value_range
        self._set_seed(seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        images = images_in(data)
        sigma = self._uniform(images, (2,), *self.sigma, self.compute_dtype, seed)
        return {
            "should_apply_blur": self._chosen(images, self.factor, seed),
            "blur_factor": ops.add(sigma, 1e-6),
        }

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        sigma = ops.cast(transformation["blur_factor"], images.dtype)
        blurred = ops.image.gaussian_blur(images, self.kernel_size, sigma, self.data_format)
        chosen = per_image(transformation["should_apply_blur"])
        return self._clipped(ops.where(chosen, blurred, images))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "kernel_size": self.kernel_size, "sigma": self.sigma}


def _odd_pair(size: Any) -> tuple[int, int]:
    """Checks a kernel size for width and height."""
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    known = all(isinstance(x, (int, float)) for x in pair)
    if len(pair) != 2 or not known or any(x % 2 != 1 for x in pair):
        raise ValueError(
            "`kernel_size` must be an odd number (or a list of two of them). Received: "
            f"kernel_size={size}"
        )
    return pair

"""Images of random contrast and brightness, without some of their color, or inverted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.dtypes import is_float
from kerascnn.layers.preprocessing.base import (
    ColorPreprocessing,
    ImagePreprocessing,
    images_in,
    per_image,
)


def _drawn(
    layer: ColorPreprocessing,
    data: Any,
    name: str,
    low: float,
    high: float,
    training: bool,
    seed: Any,
) -> Any:
    """Draws one number for each image."""
    images = images_in(data)
    layer._sizes(images)
    shape = (*images.shape[: len(images.shape) - 3], 1, 1, 1)
    if not training:
        return {name: ops.zeros(shape)}
    return {name: layer._uniform(images, shape, low, high, layer.compute_dtype, seed)}


class RandomContrast(ColorPreprocessing):
    """In training, stretches the distance of each pixel from its channel's mean by a random factor.

    Outside of training nothing happens.

    Args:
        factor: Two numbers (lower, upper) for a factor from 1 - lower to 1 + upper; or one number,
            which is the upper one, as in Keras.
        value_range: What comes out is kept in this range.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for a factor out of range.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.RandomContrast(0.5)(keras.ops.ones((2, 8, 8, 3)), training=True).shape
    (2, 8, 8, 3)
    """

    _factor_bounds = (0, 1)

    def __init__(
        self,
        factor: Any,
        value_range: Sequence[float] = (0, 255),
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_factor(factor)
        self.value_range = value_range
        self._set_seed(seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        low, high = 1.0 - self.factor[0], 1.0 + self.factor[1]
        return _drawn(self, data, "contrast_factor", low, high, training, seed)

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        axes = [len(images.shape) + axis for axis in (self.height_axis, self.width_axis)]
        mean = ops.mean(images, axes, keepdims=True)
        # The values are repeated for each pixel of a row, since kernels are fastest on whole rows.
        row = list(mean.shape)
        row[self.width_axis] = images.shape[self.width_axis]
        mean = ops.broadcast_to(mean, row)
        factor = ops.cast(transformation["contrast_factor"], images.dtype)
        return self._clipped(ops.add(ops.multiply(ops.subtract(images, mean), factor), mean))


class RandomBrightness(ColorPreprocessing):
    """In training, adds a random part of the value range to each image.

    Outside of training nothing happens.

    Args:
        factor: Two numbers from -1 (black) to 1 (white), or one number f for -f to f.
        value_range: The range that the factor is a part of; what comes out is kept in it.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for a factor out of range, or a value range that is no pair.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandomBrightness((0.5, 0.5), value_range=(0, 1))
    >>> layer(keras.ops.zeros((1, 2, 1)), training=True).numpy().ravel().tolist()
    [0.5, 0.5]
    """

    def __init__(
        self,
        factor: Any,
        value_range: Sequence[float] = (0, 255),
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_all(factor, value_range, seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        drawn = _drawn(self, data, "rgb_delta", *self.factor, training, seed)
        span = float(self.value_range[1] - self.value_range[0])
        return {"rgb_delta": ops.multiply(drawn["rgb_delta"], span)}

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        return self._clipped(ops.add(images, ops.cast(transformation["rgb_delta"], images.dtype)))


class RandomColorDegeneration(ColorPreprocessing):
    """In training, takes a random part of each image's color away.

    Outside of training nothing happens.

    Args:
        factor: Two numbers from 0 (nothing changes) to 1 (grayscale) between which the part is
            drawn, or one number f for 0 to f.
        value_range: What comes out is kept in this range.
        data_format: By default the configured one.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for a factor out of range, a value range that is no pair, or images of another
            number of channels than 3.

    Input: (height, width, 3), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandomColorDegeneration((1.0, 1.0))
    >>> image = keras.ops.array([[[100.0, 0.0, 0.0]]])
    >>> y = layer(image, training=True)
    >>> y.numpy().round().astype(int).ravel().tolist()
    [30, 30, 30]
    """

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
        shape = (self._sizes(images)[0], 1, 1, 1)
        return {"factor": self._uniform(images, shape, *self.factor, seed=seed)}

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        factor = ops.cast(transformation["factor"], images.dtype)
        gray = ops.image.rgb_to_grayscale(images, data_format=self.data_format)
        return self._clipped(ops.add(images, ops.multiply(factor, ops.subtract(gray, images))))

    def compute_output_shape(self, input_shape: Any) -> Any:
        channels = input_shape[self.channel_axis]
        if len(input_shape) not in (3, 4) or channels not in (None, 3):
            raise ValueError(
                "RandomColorDegeneration: images have 3 axes, or 4 with a batch, and 3 channels. "
                f"Received: input_shape={input_shape}"
            )
        return input_shape


class RandomGrayscale(ImagePreprocessing):
    """In training, turns randomly chosen images to gray; outside of it nothing happens.

    Args:
        factor: How likely an image is turned to gray, from 0 to 1.
        data_format: By default the configured one.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for a factor out of range.

    Input: (height, width, 3), or with a batch; of any dtype.

    Output: The same shape, still of 3 channels; integers stay integers.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandomGrayscale(1.0)
    >>> image = keras.ops.array([[[100.0, 0.0, 0.0]]])
    >>> layer(image, training=True).numpy().round().astype(int).ravel().tolist()
    [30, 30, 30]
    """

    _moves_pixels = False
    factor: float  # type: ignore[assignment]  # one number, unlike the factors of other layers

    def __init__(
        self, factor: float = 0.5, data_format: str | None = None, seed: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        if factor < 0 or factor > 1:
            raise ValueError(f"`factor` should be between 0 and 1. Received: factor={factor}")
        self.factor = factor
        self._set_seed(seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        images = images_in(data)
        shape = (self._sizes(images)[0],)
        return per_image(ops.less(self._uniform(images, shape, seed=seed), self.factor))

    def transform_images(self, images: Any, transformation: Any, training: bool = True) -> Any:
        if not training or transformation is None:
            return images
        gray = ops.image.rgb_to_grayscale(images, data_format=self.data_format)
        return ops.where(transformation, gray, images)

    def _output_dtype(self, dtype: str) -> str:
        return self.compute_dtype if is_float(dtype) else dtype

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "factor": self.factor}


class RandomInvert(ColorPreprocessing):
    """In training, inverts randomly chosen images: each value is taken from the largest one.

    Outside of training nothing happens.

    Args:
        factor: How likely an image is inverted: a probability that is drawn for each image between
            two bounds, or between 0 and one number.
        value_range: The smallest and the largest value of images.
        seed: An integer for a generator of this layer's own; by default the program's is used.
        data_format: By default the configured one.

    Raises:
        ValueError: for a factor out of range.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandomInvert((1.0, 1.0))
    >>> image = keras.ops.array([[[0.0], [55.0]]])
    >>> layer(image, training=True).numpy().ravel().tolist()
    [255.0, 200.0]
    """

    _factor_bounds = (0, 1)

    def __init__(
        self,
        factor: Any = 1.0,
        value_range: Sequence[float] = (0, 255),
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._set_factor(factor)
        self.value_range = value_range
        self._set_seed(seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        return {"apply_inversion": self._chosen(images_in(data), self.factor, seed)}

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        inverted = ops.subtract(float(self.value_range[1]), images)
        return ops.where(per_image(transformation["apply_inversion"]), inverted, images)

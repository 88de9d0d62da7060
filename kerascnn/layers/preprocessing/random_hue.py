"""Images of random hue and saturation, and all changes of color in one layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import config, ops
from kerascnn.layers.preprocessing.base import (
    ColorPreprocessing,
    ImagePreprocessing,
    images_in,
    per_image,
    saved_seed,
    to_range,
)
from kerascnn.layers.preprocessing.random_color import RandomBrightness, RandomContrast

_UNIT_RANGE = (0, 1)


class RandomHue(ColorPreprocessing):
    """In training, turns the hue of each image by a random part of the color circle.

    Outside of training nothing happens.

    Args:
        factor: Two numbers from 0 (nothing changes) to 1 (half of the circle), in both
            directions, or one number f for 0 to f.
        value_range: The smallest and the largest value of images; what comes out is kept in it.
        data_format: By default the configured one.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for a factor out of range.

    Input: (height, width, 3), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandomHue((1.0, 1.0))
    >>> image = keras.ops.array([[[255.0, 0.0, 0.0]]])
    >>> layer(image, training=True).numpy().round(2).ravel().tolist()
    [0.0, 255.0, 255.0]
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
        self._set_factor(factor)
        self.value_range = value_range
        self._set_seed(seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        images = images_in(data)
        shape = (self._sizes(images)[0],)
        backward = ops.greater(self._uniform(images, shape, seed=seed), 0.5)
        factor = self._uniform(images, shape, *self.factor, seed=seed)
        return {"factor": ops.multiply(ops.where(backward, ops.negative(factor), factor), 0.5)}

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        dtype = images.dtype
        if tuple(self.value_range) != _UNIT_RANGE and dtype != "float64":
            images = ops.cast(images, "float32")
        images = to_range(images, self.value_range, _UNIT_RANGE)
        parts = ops.image.rgb_to_hsv(images, data_format=self.data_format)
        hue, saturation, value = ops.split(parts, 3, self.channel_axis)
        hue = ops.add(hue, ops.cast(per_image(transformation["factor"]), images.dtype))
        hue = ops.where(ops.greater(hue, 1.0), ops.subtract(hue, 1.0), hue)
        hue = ops.where(ops.less(hue, 0.0), ops.add(hue, 1.0), hue)
        parts = ops.concatenate([hue, saturation, value], self.channel_axis)
        images = ops.clip(ops.image.hsv_to_rgb(parts, data_format=self.data_format), 0.0, 1.0)
        return ops.cast(to_range(images, _UNIT_RANGE, self.value_range), dtype)


class RandomSaturation(ColorPreprocessing):
    """In training, multiplies the saturation of each image by a random factor.

    Outside of training nothing happens.

    Args:
        factor: Two numbers between which f is drawn, or one number for 0 to that (from minus that
            on for negative bounds, where saturation ends at 0): the factor is f / (1 - f), so that
            0 gives gray images, 0.5 changes nothing and 1 saturates all.
        value_range: The saturation, from 0 to 1, is kept in this range, as in Keras.
        data_format: By default the configured one.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for a factor out of range, or a value range that is no pair.

    Input: (height, width, 3), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandomSaturation((0.0, 0.0))
    >>> image = keras.ops.array([[[90.0, 60.0, 30.0]]])
    >>> layer(image, training=True).numpy().ravel().tolist()
    [90.0, 90.0, 90.0]
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
        factor = self._uniform(images, (self._sizes(images)[0],), *self.factor, seed=seed)
        rest = ops.add(ops.subtract(1.0, factor), config.epsilon())
        return {"factor": ops.divide(factor, rest)}

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        factor = ops.cast(per_image(transformation["factor"]), images.dtype)
        parts = ops.image.rgb_to_hsv(images, data_format=self.data_format)
        hue, saturation, value = ops.split(parts, 3, self.channel_axis)
        saturation = self._clipped(ops.multiply(saturation, factor))
        parts = ops.concatenate([hue, saturation, value], self.channel_axis)
        return ops.image.hsv_to_rgb(parts, data_format=self.data_format)


class RandomColorJitter(ImagePreprocessing):
    """In training, changes brightness, contrast, saturation and hue at random, in this order.

    Outside of training nothing happens.

    Args:
        value_range: The smallest and the largest value of images.
        brightness_factor: That of `RandomBrightness`; None leaves the brightness as it is.
        contrast_factor: That of `RandomContrast`, likewise.
        saturation_factor: That of `RandomSaturation`, likewise.
        hue_factor: That of `RandomHue`, likewise.
        seed: An integer for a generator of this layer's own; by default the program's is used.
        data_format: By default the configured one.

    Raises:
        ValueError: for a factor out of range.

    Input: (height, width, 3), or with a batch; of any dtype. Brightness and contrast take any
        number of channels.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandomColorJitter(brightness_factor=0.2, hue_factor=0.1)
    >>> layer(keras.ops.ones((2, 8, 8, 3)), training=True).shape
    (2, 8, 8, 3)
    """

    _moves_pixels = False

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        brightness_factor: Any = None,
        contrast_factor: Any = None,
        saturation_factor: Any = None,
        hue_factor: Any = None,
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self.value_range = value_range
        self.brightness_factor = brightness_factor
        self.contrast_factor = contrast_factor
        self.saturation_factor = saturation_factor
        self.hue_factor = hue_factor
        self._set_seed(seed)
        for name, kind in (
            ("brightness", RandomBrightness),
            ("contrast", RandomContrast),
            ("saturation", RandomSaturation),
            ("hue", RandomHue),
        ):
            factor = getattr(self, f"{name}_factor")
            layer = None
            if factor is not None:
                layer = kind(
                    factor, value_range, data_format=self.data_format, dtype=self.dtype_policy
                )
            setattr(self, f"random_{name}", layer)

    def _parts(self) -> dict[str, Any]:
        """Returns the layers that change something, by name and in their order."""
        names = [f"random_{name}" for name in ("brightness", "contrast", "saturation", "hue")]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        """Draws what happens to these images in each of the layers that this one consists of."""
        if not training:
            return None
        seed = self.generator if seed is None else seed
        return {
            name: layer.get_random_transformation(data, seed=seed)
            for name, layer in self._parts().items()
        }

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        for name, layer in self._parts().items():
            images = layer.transform_images(images, transformation[name])
        return images

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "value_range": self.value_range,
            "brightness_factor": self.brightness_factor,
            "contrast_factor": self.contrast_factor,
            "saturation_factor": self.saturation_factor,
            "hue_factor": self.hue_factor,
            "seed": saved_seed(self.seed),
        }

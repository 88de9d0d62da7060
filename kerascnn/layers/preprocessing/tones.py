"""Layers that invert the bright parts of images, or reduce the number of tones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops, random
from kerascnn.layers.preprocessing.base import (
    ColorPreprocessing,
    ImagePreprocessing,
    images_in,
    per_image,
    saved_seed,
    sorted_value_range,
    to_range,
)

_FULL_RANGE = (0, 255)
_MOST_BITS = 8


class Solarization(ImagePreprocessing):
    """In training, makes images brighter by a random amount and inverts what is bright then.

    Outside of training nothing happens.

    Args:
        addition_factor: Two numbers from 0 to 1, or one number f for 0 and f. From the lower one
            to 255 times the upper one is added, in a range of values from 0 to 255, as in Keras.
        threshold_factor: The same for the threshold from which on values are inverted.
        value_range: The smallest and the largest value of images.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for a factor out of range, or a value range that is no pair.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.Solarization()  # adds nothing, and inverts everything
    >>> image = keras.ops.array([[[0.0], [55.0]]])
    >>> layer(image, training=True).numpy().ravel().tolist()
    [255.0, 200.0]
    """

    _moves_pixels = False

    def __init__(
        self,
        addition_factor: Any = 0.0,
        threshold_factor: Any = 0.0,
        value_range: Sequence[float] = (0, 255),
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_seed(seed)
        self.addition_factor = _share("addition_factor", addition_factor)
        self.threshold_factor = _share("threshold_factor", threshold_factor)
        self.value_range = sorted_value_range(value_range)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        images = images_in(data)
        self._sizes(images)
        shape = (*images.shape[: len(images.shape) - 3], 1, 1, 1)
        drawn = {}
        for name, (low, high) in (
            ("additions", self.addition_factor),
            ("thresholds", self.threshold_factor),
        ):
            drawn[name] = self._uniform(images, shape, low, high * 255, self.compute_dtype, seed)
        return drawn

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        additions, thresholds = (
            ops.cast(transformation[name], images.dtype) for name in ("additions", "thresholds")
        )
        images = ops.add(to_range(images, self.value_range, _FULL_RANGE), additions)
        images = ops.clip(images, 0.0, 255.0)
        images = ops.where(ops.less(images, thresholds), images, ops.subtract(255.0, images))
        return to_range(images, _FULL_RANGE, self.value_range)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "value_range": self.value_range,
            "addition_factor": self.addition_factor,
            "threshold_factor": self.threshold_factor,
            "seed": saved_seed(self.seed),
        }


def _share(name: str, factor: Any) -> tuple[float, float]:
    """Returns the bounds of a factor from 0 to 1: two, or 0 and one number."""
    values = list(factor) if isinstance(factor, (tuple, list)) else [0, factor]
    known = all(isinstance(x, (int, float)) and 0 <= x <= 1 for x in values)
    if len(values) != 2 or not known:
        raise ValueError(
            "The `addition_factor` and `threshold_factor` arguments should be a number (or a list "
            f"of two numbers) in the range [0, 1]. Received: {name}={factor}"
        )
    low, high = sorted(values)
    return low, high


class RandomPosterization(ColorPreprocessing):
    """In training, keeps a random number of the 8 bits of each image's values.

    Outside of training nothing happens.

    Args:
        factor: How many bits: two numbers from 1 to 8, the upper one being drawn only where it is
            the lower one too, or one number f for 1 and f.
        value_range: The smallest and the largest value of images.
        data_format: By default the configured one.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for a factor out of range, or a value range that is no pair.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandomPosterization((2, 2))
    >>> image = keras.ops.array([[[63.0], [64.0], [255.0]]])
    >>> layer(image, training=True).numpy().ravel().tolist()
    [0.0, 64.0, 192.0]
    """

    _factor_bounds = (1, _MOST_BITS)

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
        shape = (self._sizes(images)[0],)
        low, high = (int(bits) for bits in self.factor)
        with self._drawing(images, seed) as generator:
            if low < high:
                bits = random.randint(shape, low, high, "uint8", generator)
            else:
                bits = ops.full(shape, low, "uint8")
            return {"shift_factor": ops.subtract(_MOST_BITS, bits)}

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        dtype = images.dtype
        shift = ops.cast(per_image(transformation["shift_factor"]), "int32")
        images = ops.clip(to_range(images, self.value_range, _FULL_RANGE), 0.0, 255.0)
        images = ops.cast(images, "int32")
        images = ops.left_shift(ops.right_shift(images, shift), shift)
        return to_range(ops.cast(images, dtype), _FULL_RANGE, self.value_range)

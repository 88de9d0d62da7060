"""Images of random contrast and brightness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.layers.preprocessing.base import ImagePreprocessing, saved_seed


class _RandomColor(ImagePreprocessing):
    """Draws one number for each image; masks stay as they are."""

    value_range: Sequence[float]

    def _drawn(
        self, data: Any, name: str, low: float, high: float, training: bool, seed: Any
    ) -> Any:
        images = data["images"] if isinstance(data, dict) else data
        self._sizes(images)
        shape = (*images.shape[: len(images.shape) - 3], 1, 1, 1)
        if not training:
            return {name: ops.zeros(shape)}
        return {name: self._uniform(images, shape, low, high, self.compute_dtype, seed)}

    def _clipped(self, images: Any) -> Any:
        return ops.clip(images, float(self.value_range[0]), float(self.value_range[1]))

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: bool = True
    ) -> Any:
        return segmentation_masks

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "factor": self.factor,
            "value_range": self.value_range,
            "seed": saved_seed(self.seed),
        }


class RandomContrast(_RandomColor):
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
        return self._drawn(data, "contrast_factor", low, high, training, seed)

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        axes = [len(images.shape) + axis for axis in (self.height_axis, self.width_axis)]
        mean = ops.mean(images, axes, keepdims=True)
        # For each pixel of a row: kernels are fastest where whole rows go together.
        row = list(mean.shape)
        row[self.width_axis] = images.shape[self.width_axis]
        mean = ops.broadcast_to(mean, row)
        factor = ops.cast(transformation["contrast_factor"], images.dtype)
        return self._clipped(ops.add(ops.multiply(ops.subtract(images, mean), factor), mean))


class RandomBrightness(_RandomColor):
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
        self._set_factor(factor)
        self._set_seed(seed)
        if not isinstance(value_range, (tuple, list)) or len(value_range) != 2:
            raise ValueError(
                "The `value_range` argument should be a list of two numbers. Received: "
                f"value_range={value_range}"
            )
        self.value_range = sorted(value_range)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        drawn = self._drawn(data, "rgb_delta", *self.factor, training, seed)
        span = float(self.value_range[1] - self.value_range[0])
        return {"rgb_delta": ops.multiply(drawn["rgb_delta"], span)}

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        return self._clipped(ops.add(images, ops.cast(transformation["rgb_delta"], images.dtype)))

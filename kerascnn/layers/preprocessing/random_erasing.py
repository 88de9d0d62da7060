"""Images with random parts erased."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import ops, random
from kerascnn.layers.preprocessing.base import (
    ImagePreprocessing,
    factor_overlapping,
    images_in,
    per_image,
    saved_seed,
)


class RandomErasing(ImagePreprocessing):
    """In training, erases a random rectangle of each image; outside of it nothing happens.

    Args:
        factor: How likely an image is erased in: a probability that is drawn for each image between
            two bounds, or between 0 and one number.
        scale: The bounds of the parts of height and width, squared.
        fill_value: What is put there: a number, one for each of three channels, or by default
            normally distributed noise times the upper end of `value_range`.
        value_range: What is put there is kept in this range.
        seed: An integer for a generator of this layer's own; by default the program's is used.
        data_format: By default the configured one.

    Raises:
        ValueError: for a factor or scale out of range, or another fill value.

    Input: (height, width, channels), or with a batch; of any dtype.

    Output: The same shape, in the layer's dtype.

    Source: Zhong et al., "Random Erasing Data Augmentation", 2017.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RandomErasing((1.0, 1.0), scale=(1.0, 1.0), fill_value=7)
    >>> erased = layer(keras.ops.zeros((4, 8, 8, 1)), training=True).numpy()
    >>> sorted({*erased.ravel().tolist()})
    [7.0]
    """

    _factor_bounds = (0, 1)
    _moves_pixels = False

    def __init__(
        self,
        factor: Any = 1.0,
        scale: Any = (0.02, 0.33),
        fill_value: Any = None,
        value_range: Sequence[float] = (0, 255),
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._set_factor(factor)
        self.scale = factor_overlapping(scale, 0, 1, "scale")
        listed = isinstance(fill_value, (tuple, list)) and len(fill_value) == 3
        if not (fill_value is None or isinstance(fill_value, (int, float)) or listed):
            raise ValueError(
                "The `fill_value` argument should be a number (or a list of three numbers). "
                f"Received: fill_value={fill_value}"
            )
        self.fill_value = fill_value
        self.value_range = value_range
        self._set_seed(seed)

    def get_random_transformation(self, data: Any, training: bool = True, seed: Any = None) -> Any:
        if not training:
            return None
        images = images_in(data)
        batch, height, width = self._sizes(images)
        dtype = self.compute_dtype
        parts = ops.sqrt(self._uniform(images, (batch, 2), *self.scale, dtype, seed))
        columns, _ = self._span(images, parts[:, 0], width, self.width_axis, seed)
        rows, _ = self._span(images, parts[:, 1], height, self.height_axis, seed)
        return {
            "apply_erasing": self._chosen(images, self.factor, seed),
            "batch_masks": ops.logical_and(rows, columns),
            "fill_value": self._filling(images, seed),
        }

    def _filling(self, images: Any, seed: Any) -> Any:
        dtype = self.compute_dtype
        low, high = (float(x) for x in self.value_range)
        if self.fill_value is None:
            with self._drawing(images, seed) as generator:
                noise = random.normal(tuple(images.shape), dtype=dtype, seed=generator)
            return ops.clip(ops.multiply(noise, high), low, high)
        values = np.asarray(self.fill_value, "float32").reshape(-1)
        shape = [1, 1, 1, 1]
        shape[self.channel_axis] = len(values)
        return ops.cast(np.clip(values, low, high).reshape(shape), dtype)

    def _transform_images(self, images: Any, transformation: Any, interpolation: str) -> Any:
        erased = per_image(transformation["apply_erasing"])
        where = ops.logical_and(transformation["batch_masks"], erased)
        return ops.where(where, ops.cast(transformation["fill_value"], images.dtype), images)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "factor": self.factor,
            "scale": self.scale,
            "fill_value": self.fill_value,
            "value_range": self.value_range,
            "seed": saved_seed(self.seed),
        }

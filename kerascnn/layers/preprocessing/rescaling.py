"""A layer that maps inputs to another range."""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import config, ops, serialization
from kerascnn.layers.layer import Layer


class Rescaling(Layer):
    """inputs * scale + offset; integers become floating first.

    Args:
        scale: A number, or one for each channel (of the configured `image_data_format`).
        offset: The same.

    Input: Any shape and dtype, numbers in lists too.

    Output: The same shape, in the layer's dtype.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> keras.layers.Rescaling(1 / 255)(np.array([[0, 255]], "uint8")).numpy().tolist()
    [[0.0, 1.0]]
    """

    _supports_masking = True
    _takes_numbers = True

    def __init__(self, scale: Any, offset: Any = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = serialization.deserialize_object(scale)
        self.offset = serialization.deserialize_object(offset)

    def call(self, inputs: Any) -> Any:
        x = ops.cast(inputs, self.compute_dtype)
        x = ops.multiply(x, self._factor(self.scale))
        if isinstance(self.offset, (int, float)) and self.offset == 0:
            return x
        return ops.add(x, self._factor(self.offset))

    def _factor(self, value: Any) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, np.generic):
            return float(value)
        array = np.asarray(value)
        if array.ndim and config.image_data_format() == "channels_first":
            array = array.reshape(array.shape + (1,) * (3 - array.ndim))
        return ops.convert_to_tensor(array, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "scale": serialization.serialize_object(self.scale),
            "offset": serialization.serialize_object(self.offset),
        }

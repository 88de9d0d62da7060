"""All axes but the batch in one."""

from __future__ import annotations

import math
from typing import Any

from kerascnn import config, ops
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer
from kerascnn.symbolic.keras_tensor import KerasTensor


class Flatten(Layer):
    """Puts all axes but the batch into one.

    Args:
        data_format: With "channels_first" the channels are moved to the end before, so that the
            order is the same for both formats.

    Input: (n, ...)

    Output: (n, product of the other sizes)

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Flatten()(keras.ops.ones((4, 7, 7, 2))).shape
    (4, 98)
    """

    def __init__(self, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = config.standardize_data_format(data_format)
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Any) -> Any:
        rank = len(inputs.shape)
        if self.data_format == "channels_first" and rank > 2:
            inputs = ops.transpose(inputs, (0, *range(2, rank), 1))
        return ops.reshape(inputs, (inputs.shape[0], math.prod(inputs.shape[1:])))

    def compute_output_shape(self, input_shape: Any) -> Any:
        sizes = input_shape[1:]
        return (input_shape[0], None if None in sizes else math.prod(sizes))

    def compute_output_spec(self, inputs: Any) -> Any:
        return KerasTensor(self.compute_output_shape(inputs.shape), inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "data_format": self.data_format}

"""The mean of whole images."""

from __future__ import annotations

from typing import Any

from kerascnn import config, ops
from kerascnn.layers.arguments import image_shape, spatial_sizes
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer


class GlobalAveragePooling2D(Layer):
    """The mean of each channel over the image.

    Args:
        data_format: "channels_last" or "channels_first", by default `config.image_data_format()`.
        keepdims: Whether height and width stay, with size 1.

    Input: (n, h, w, c), or (n, c, h, w) with "channels_first".

    Output: (n, c), with keepdims (n, 1, 1, c) or (n, c, 1, 1).

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.GlobalAveragePooling2D()(keras.ops.ones((4, 7, 7, 32))).shape
    (4, 32)
    """

    def __init__(
        self, data_format: str | None = None, keepdims: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.data_format = config.standardize_data_format(data_format)
        self.keepdims = keepdims
        self.input_spec = InputSpec(ndim=4)
        self.built = True

    def call(self, inputs: Any) -> Any:
        axes = (1, 2) if self.data_format == "channels_last" else (2, 3)
        return ops.mean(inputs, axes, keepdims=self.keepdims)

    def compute_output_shape(self, input_shape: Any) -> Any:
        _, channels = spatial_sizes(input_shape, self.data_format)
        if self.keepdims:
            return image_shape(input_shape[0], (1, 1), channels, self.data_format)
        return (input_shape[0], channels)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "data_format": self.data_format,
            "keepdims": self.keepdims,
        }

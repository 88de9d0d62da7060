"""Pooling of images: one number for each window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerascnn import config, ops
from kerascnn.layers.arguments import (
    image_shape,
    spatial_sizes,
    standardize_padding,
    standardize_pair,
    window_output_sizes,
)
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer


class Pooling2D(Layer):
    """Base of `MaxPooling2D` and `AveragePooling2D`."""

    _pool: Callable[..., Any]

    def __init__(
        self,
        pool_size: int | Sequence[int] = (2, 2),
        strides: int | Sequence[int] | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.pool_size = standardize_pair(pool_size, "pool_size")
        steps = self.pool_size if strides is None else strides
        self.strides = standardize_pair(steps, "strides")
        self.padding = standardize_padding(padding)
        self.data_format = config.standardize_data_format(data_format)
        self.input_spec = InputSpec(ndim=4)
        self.built = True

    def call(self, inputs: Any) -> Any:
        pool = type(self)._pool
        return pool(inputs, self.pool_size, self.strides, self.padding, self.data_format)

    def compute_output_shape(self, input_shape: Any) -> Any:
        sizes, channels = spatial_sizes(input_shape, self.data_format)
        sizes = window_output_sizes(self, sizes, self.pool_size, self.strides, self.padding)
        return image_shape(input_shape[0], sizes, channels, self.data_format)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "pool_size": self.pool_size,
            "padding": self.padding,
            "strides": self.strides,
            "data_format": self.data_format,
        }


class MaxPooling2D(Pooling2D):
    """The largest element of each window.

    Args:
        pool_size: Height and width of the window, or one number for both.
        strides: Steps between windows, by default their size.
        padding: "valid" for whole windows only, "same" for windows that reach over the border.
        data_format: "channels_last" or "channels_first", by default `config.image_data_format()`.
        name: By default max_pooling2d, max_pooling2d_1, ...

    Input: (n, h, w, c), or (n, c, h, w) with "channels_first".

    Output: (n, oh, ow, c), or (n, c, oh, ow).

    Raises:
        ValueError: for images smaller than the window.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.MaxPooling2D()(keras.ops.ones((4, 28, 28, 3))).shape
    (4, 14, 14, 3)
    """

    _pool = staticmethod(ops.max_pool)


class AveragePooling2D(Pooling2D):
    """The mean of each window's elements that lie inside the image.

    Args:
        pool_size: Height and width of the window, or one number for both.
        strides: Steps between windows, by default their size.
        padding: "valid" for whole windows only, "same" for windows that reach over the border.
        data_format: "channels_last" or "channels_first", by default `config.image_data_format()`.
        name: By default average_pooling2d, average_pooling2d_1, ...

    Input: (n, h, w, c), or (n, c, h, w) with "channels_first".

    Output: (n, oh, ow, c), or (n, c, oh, ow).

    Raises:
        ValueError: for images smaller than the window.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.AveragePooling2D(3)(keras.ops.ones((4, 28, 28, 3))).shape
    (4, 9, 9, 3)
    """

    _pool = staticmethod(ops.average_pool)

    # Unlike in MaxPooling2D, Keras has no default for the window here.
    def __init__(
        self,
        pool_size: int | Sequence[int],
        strides: int | Sequence[int] | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(pool_size, strides, padding, data_format, name, **kwargs)

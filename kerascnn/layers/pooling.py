"""Pooling of sequences, images and volumes: one number for each window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerascnn import config, ops
from kerascnn.layers.arguments import (
    image_shape,
    spatial_sizes,
    standardize_padding,
    standardize_tuple,
    window_output_sizes,
)
from kerascnn.layers.defaults import defaults
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer


class Pooling(Layer):
    """Base of the layers that pool windows of one size."""

    rank: int
    _pool: Callable[..., Any]

    def __init__(
        self,
        pool_size: int | Sequence[int],
        strides: int | Sequence[int] | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        rank = self.rank
        self.pool_size = standardize_tuple(pool_size, rank, "pool_size")
        steps = self.pool_size if strides is None else strides
        self.strides = standardize_tuple(steps, rank, "strides")
        self.padding = standardize_padding(padding)
        self.data_format = config.standardize_data_format(data_format)
        self.input_spec = InputSpec(ndim=rank + 2)
        self._build_at_init()

    def call(self, inputs: Any) -> Any:
        pool = type(self)._pool
        return pool(inputs, self.pool_size, self.strides, self.padding, self.data_format)

    def compute_output_shape(self, input_shape: Any) -> Any:
        sizes, channels = spatial_sizes(input_shape, self.data_format, self.rank)
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


class MaxPooling(Pooling):
    """Base of the layers that take the largest element of windows."""

    _pool = staticmethod(ops.max_pool)

    def __init__(
        self,
        pool_size: int | Sequence[int] = 2,
        strides: int | Sequence[int] | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(pool_size, strides, padding, data_format, name, **kwargs)


class MaxPooling1D(MaxPooling):
    """The largest element of each window.

    Args:
        pool_size: Length of the window.
        strides: Steps between windows, by default their size.
        padding: "valid" for whole windows only, "same" for windows that reach over the border.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        name: By default max_pooling1d, max_pooling1d_1, ...

    Input: (n, steps, c), or (n, c, steps) with "channels_first".

    Output: (n, outputs, c), or (n, c, outputs).

    Raises:
        ValueError: for sequences smaller than the window.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.MaxPooling1D()(keras.ops.ones((4, 100, 3))).shape
    (4, 50, 3)
    """

    rank = 1


@defaults(pool_size=(2, 2))
class MaxPooling2D(MaxPooling):
    """The largest element of each window.

    Args:
        pool_size: Height and width of the window, or one number for both.
        strides: Steps between windows, by default their size.
        padding: "valid" for whole windows only, "same" for windows that reach over the border.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
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

    rank = 2


@defaults(pool_size=(2, 2, 2))
class MaxPooling3D(MaxPooling):
    """The largest element of each window.

    Args:
        pool_size: Depth, height and width of the window, or one number for all.
        strides: Steps between windows, by default their size.
        padding: "valid" for whole windows only, "same" for windows that reach over the border.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        name: By default max_pooling3d, max_pooling3d_1, ...

    Input: (n, d, h, w, c), or (n, c, d, h, w) with "channels_first".

    Output: (n, od, oh, ow, c), or (n, c, od, oh, ow).

    Raises:
        ValueError: for volumes smaller than the window.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.MaxPooling3D()(keras.ops.ones((4, 8, 28, 28, 3))).shape
    (4, 4, 14, 14, 3)
    """

    rank = 3


class AveragePooling1D(Pooling):
    """The mean of each window's elements that lie inside the input.

    Args:
        pool_size: Length of the window.
        strides: Steps between windows, by default their size.
        padding: "valid" for whole windows only, "same" for windows that reach over the border.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        name: By default average_pooling1d, average_pooling1d_1, ...

    Input: (n, steps, c), or (n, c, steps) with "channels_first".

    Output: (n, outputs, c), or (n, c, outputs).

    Raises:
        ValueError: for sequences smaller than the window.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.AveragePooling1D(3)(keras.ops.ones((4, 100, 3))).shape
    (4, 33, 3)
    """

    rank = 1
    _pool = staticmethod(ops.average_pool)


class AveragePooling2D(Pooling):
    """The mean of each window's elements that lie inside the input.

    Args:
        pool_size: Height and width of the window, or one number for both.
        strides: Steps between windows, by default their size.
        padding: "valid" for whole windows only, "same" for windows that reach over the border.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
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

    rank = 2
    _pool = staticmethod(ops.average_pool)


class AveragePooling3D(Pooling):
    """The mean of each window's elements that lie inside the input.

    Args:
        pool_size: Depth, height and width of the window, or one number for all.
        strides: Steps between windows, by default their size.
        padding: "valid" for whole windows only, "same" for windows that reach over the border.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        name: By default average_pooling3d, average_pooling3d_1, ...

    Input: (n, d, h, w, c), or (n, c, d, h, w) with "channels_first".

    Output: (n, od, oh, ow, c), or (n, c, od, oh, ow).

    Raises:
        ValueError: for volumes smaller than the window.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.AveragePooling3D((2, 3, 3))(keras.ops.ones((4, 8, 28, 28, 3))).shape
    (4, 4, 9, 9, 3)
    """

    rank = 3
    _pool = staticmethod(ops.average_pool)

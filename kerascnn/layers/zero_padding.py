"""Zeros around signals, images and volumes."""

from __future__ import annotations

from typing import Any

from kerascnn import config, ops
from kerascnn.layers.arguments import standardize_tuple
from kerascnn.layers.borders import first_spatial_axis, standardize_borders
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer


class _ZeroPadding(Layer):
    """The base of padding layers for 1, 2 and 3 axes."""

    def __init__(self, padding: Any, data_format: str | None, axes: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = config.standardize_data_format(data_format)
        self.padding: Any
        if axes == 1:
            self.padding = standardize_tuple(padding, 2, "padding", allow_zero=True)
        else:
            self.padding = standardize_borders(padding, axes, "padding")
        self.input_spec = InputSpec(ndim=axes + 2)

    def _borders(self) -> list[tuple[int, int]]:
        """Returns (before, after) for each axis of the input."""
        pairs = [self.padding] if isinstance(self.padding[0], int) else list(self.padding)
        at = first_spatial_axis(self.data_format)
        rank = len(pairs) + 2
        none = (0, 0)
        return [pairs[i - at] if at <= i < at + len(pairs) else none for i in range(rank)]

    def call(self, inputs: Any) -> Any:
        return ops.pad(inputs, self._borders())

    def compute_output_shape(self, input_shape: Any) -> Any:
        borders = self._borders()
        return tuple(
            None if n is None else n + before + after
            for n, (before, after) in zip(input_shape, borders, strict=True)
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "padding": self.padding,
            "data_format": self.data_format,
        }


class ZeroPadding1D(_ZeroPadding):
    """Adds zeros before and after signals.

    Args:
        padding: How many on both ends, or (before, after).
        data_format: "channels_last" or "channels_first", by default `config.image_data_format()`.

    Input: (n, length, c), or (n, c, length) with "channels_first".

    Output: the same with the length grown.

    Raises:
        ValueError: for anything but integers from 0 on.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.ZeroPadding1D((1, 2))(keras.ops.ones((4, 5, 3))).shape
    (4, 8, 3)
    """

    def __init__(self, padding: Any = 1, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(padding, data_format, 1, **kwargs)


class ZeroPadding2D(_ZeroPadding):
    """Adds zeros around images.

    Args:
        padding: How many on each side: one number, (height, width), or
            ((top, bottom), (left, right)).
        data_format: "channels_last" or "channels_first", by default `config.image_data_format()`.

    Input: (n, h, w, c), or (n, c, h, w) with "channels_first".

    Output: the same with height and width grown.

    Raises:
        ValueError: for anything but integers from 0 on.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.ZeroPadding2D(((1, 0), (2, 2)))(keras.ops.ones((4, 5, 5, 3))).shape
    (4, 6, 9, 3)
    """

    def __init__(
        self, padding: Any = (1, 1), data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(padding, data_format, 2, **kwargs)


class ZeroPadding3D(_ZeroPadding):
    """Adds zeros around volumes.

    Args:
        padding: How many on each side: one number, one for each axis, or a pair
            (before, after) for each.
        data_format: "channels_last" or "channels_first", by default `config.image_data_format()`.

    Input: (n, d, h, w, c), or (n, c, d, h, w) with "channels_first".

    Output: the same with depth, height and width grown.

    Raises:
        ValueError: for anything but integers from 0 on.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.ZeroPadding3D(1)(keras.ops.ones((4, 5, 5, 5, 3))).shape
    (4, 7, 7, 7, 3)
    """

    def __init__(
        self,
        padding: Any = ((1, 1), (1, 1), (1, 1)),
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(padding, data_format, 3, **kwargs)

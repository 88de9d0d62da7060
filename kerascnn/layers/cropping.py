"""Signals, images and volumes without their borders."""

from __future__ import annotations

from typing import Any

from kerascnn import config, ops
from kerascnn.layers.arguments import standardize_tuple
from kerascnn.layers.borders import first_spatial_axis, standardize_borders
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer


class _Cropping(Layer):
    """The base of cropping layers for 1, 2 and 3 axes."""

    cropping: Any
    data_format = "channels_last"

    def _borders(self, rank: int) -> list[tuple[int, int]]:
        """Returns (before, after) for each axis of the input."""
        pairs = [self.cropping] if isinstance(self.cropping[0], int) else list(self.cropping)
        at = first_spatial_axis(self.data_format)
        none = (0, 0)
        return [pairs[i - at] if at <= i < at + len(pairs) else none for i in range(rank)]

    def call(self, inputs: Any) -> Any:
        shape = self.compute_output_shape(tuple(inputs.shape))
        borders = self._borders(len(shape))
        key = tuple(slice(b, b + n) for (b, _), n in zip(borders, shape, strict=True))
        return ops.get_item(inputs, key)

    def compute_output_shape(self, input_shape: Any) -> Any:
        borders = self._borders(len(input_shape))
        gone = [before + after for before, after in borders]
        for n, less in zip(input_shape, gone, strict=True):
            if n is not None and less and less >= n:
                raise ValueError(
                    f"Layer '{self.name}' ({type(self).__name__}): `cropping` leaves nothing of "
                    f"an axis of size {n}. Received: input_shape={tuple(input_shape)}, "
                    f"cropping={self.cropping}"
                )
        return tuple(
            None if n is None else n - less for n, less in zip(input_shape, gone, strict=True)
        )


class Cropping1D(_Cropping):
    """Removes the ends of signals.

    Args:
        cropping: How many elements go at both ends, or (at the start, at the end).

    Input: (n, length, c)

    Output: (n, shorter length, c)

    Raises:
        ValueError: for anything but integers from 0 on, and where nothing would be left.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Cropping1D((1, 2))(keras.ops.ones((4, 5, 3))).shape
    (4, 2, 3)
    """

    def __init__(self, cropping: Any = (1, 1), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cropping = standardize_tuple(cropping, 2, "cropping", allow_zero=True)
        self.input_spec = InputSpec(ndim=3)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "cropping": self.cropping}


class _SpatialCropping(_Cropping):
    """Cropping in either data format."""

    def __init__(self, cropping: Any, data_format: str | None, axes: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = config.standardize_data_format(data_format)
        self.cropping = standardize_borders(cropping, axes, "cropping")
        self.input_spec = InputSpec(ndim=axes + 2)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "cropping": self.cropping,
            "data_format": self.data_format,
        }


class Cropping2D(_SpatialCropping):
    """Removes the borders of images.

    Args:
        cropping: How many pixels go on each side: one number, (height, width), or
            ((top, bottom), (left, right)).
        data_format: "channels_last" or "channels_first", by default `config.image_data_format()`.

    Input: (n, h, w, c), or (n, c, h, w) with "channels_first".

    Output: the same with less height and width.

    Raises:
        ValueError: for anything but integers from 0 on, and where nothing would be left.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Cropping2D(((1, 0), (2, 2)))(keras.ops.ones((4, 7, 7, 3))).shape
    (4, 6, 3, 3)
    """

    def __init__(
        self, cropping: Any = ((0, 0), (0, 0)), data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(cropping, data_format, 2, **kwargs)


class Cropping3D(_SpatialCropping):
    """Removes the borders of volumes.

    Args:
        cropping: How many elements go on each side: one number, one for each axis, or a pair
            (before, after) for each.
        data_format: "channels_last" or "channels_first", by default `config.image_data_format()`.

    Input: (n, d, h, w, c), or (n, c, d, h, w) with "channels_first".

    Output: the same with less depth, height and width.

    Raises:
        ValueError: for anything but integers from 0 on, and where nothing would be left.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Cropping3D(1)(keras.ops.ones((4, 5, 5, 5, 3))).shape
    (4, 3, 3, 3, 3)
    """

    def __init__(
        self,
        cropping: Any = ((1, 1), (1, 1), (1, 1)),
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(cropping, data_format, 3, **kwargs)

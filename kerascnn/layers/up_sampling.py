"""Layers that enlarge signals, images and volumes by integer factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import config, ops
from kerascnn.layers.arguments import standardize_tuple
from kerascnn.layers.borders import first_spatial_axis
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer


def _repeat(x: Any, factors: Sequence[int], first: int) -> Any:
    """Repeats each element along the axes from `first` on, as often as the factors say."""
    apart: list[int] = []
    repeated: list[int] = []
    result: list[int] = []
    for axis, n in enumerate(x.shape):
        factor = factors[axis - first] if first <= axis < first + len(factors) else None
        apart += [n] if factor is None else [n, 1]
        repeated += [n] if factor is None else [n, factor]
        result.append(n * (factor or 1))
    return ops.reshape(ops.broadcast_to(ops.reshape(x, apart), repeated), result)


def _grown(shape: Sequence[int | None], factors: Sequence[int], first: int) -> tuple[Any, ...]:
    sizes = list(shape)
    for axis, factor in enumerate(factors, first):
        n = sizes[axis]
        sizes[axis] = None if n is None else n * factor
    return tuple(sizes)


class UpSampling1D(Layer):
    """Repeats each step of a signal.

    Args:
        size: How many times.

    Input: (n, length, c)

    Output: (n, length * size, c)

    Raises:
        TypeError: for anything but an integer.
        ValueError: for one below 1.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.UpSampling1D(3)(keras.ops.ones((4, 5, 2))).shape
    (4, 15, 2)
    """

    def __init__(self, size: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(size, int) or isinstance(size, bool):
            raise TypeError(f"`size` must be an integer. Received: size={size!r}")
        if size < 1:
            raise ValueError(f"`size` must be positive. Received: size={size}")
        self.size = size
        self.input_spec = InputSpec(ndim=3)

    def call(self, inputs: Any) -> Any:
        return _repeat(inputs, (self.size,), 1)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return _grown(input_shape, (self.size,), 1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "size": self.size}


class UpSampling2D(Layer):
    """Enlarges images by repeating or interpolating pixels.

    Args:
        size: Factor of the height and the width, or one for each.
        data_format: "channels_last" or "channels_first", by default `config.image_data_format()`.
        interpolation: "nearest" repeats pixels; the others are those of `ops.image.resize`.

    Input: (n, h, w, c), or (n, c, h, w) with "channels_first".

    Output: the same with height and width times the factors.

    Raises:
        ValueError: for factors below 1, and on the call for an unknown interpolation.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.UpSampling2D((2, 3))(keras.ops.ones((4, 5, 5, 2))).shape
    (4, 10, 15, 2)
    """

    def __init__(
        self,
        size: int | Sequence[int] = (2, 2),
        data_format: str | None = None,
        interpolation: str = "nearest",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.data_format = config.standardize_data_format(data_format)
        self.size = standardize_tuple(size, 2, "size")
        self.interpolation = interpolation.lower()
        self.input_spec = InputSpec(ndim=4)

    def call(self, inputs: Any) -> Any:
        first = first_spatial_axis(self.data_format)
        if self.interpolation == "nearest":
            return _repeat(inputs, self.size, first)
        sizes = _grown(inputs.shape, self.size, first)[first : first + 2]
        return ops.image.resize(
            inputs, sizes, interpolation=self.interpolation, data_format=self.data_format
        )

    def compute_output_shape(self, input_shape: Any) -> Any:
        return _grown(input_shape, self.size, first_spatial_axis(self.data_format))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "size": self.size,
            "data_format": self.data_format,
            "interpolation": self.interpolation,
        }


class UpSampling3D(Layer):
    """Enlarges volumes by repeating elements.

    Args:
        size: Factor of all three sizes, or one for each.
        data_format: "channels_last" or "channels_first", by default `config.image_data_format()`.

    Input: (n, d, h, w, c), or (n, c, d, h, w) with "channels_first".

    Output: the same with depth, height and width times the factors.

    Raises:
        ValueError: for factors below 1.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.UpSampling3D(2)(keras.ops.ones((4, 5, 5, 5, 2))).shape
    (4, 10, 10, 10, 2)
    """

    def __init__(
        self,
        size: int | Sequence[int] = (2, 2, 2),
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.data_format = config.standardize_data_format(data_format)
        self.size = standardize_tuple(size, 3, "size")
        self.input_spec = InputSpec(ndim=5)

    def call(self, inputs: Any) -> Any:
        return _repeat(inputs, self.size, first_spatial_axis(self.data_format))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return _grown(input_shape, self.size, first_spatial_axis(self.data_format))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "size": self.size, "data_format": self.data_format}

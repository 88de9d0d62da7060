"""Pooling to an output of a given size, whatever the size of the input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerascnn import config, ops
from kerascnn.layers.arguments import image_shape, spatial_sizes, standardize_tuple
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer


class AdaptivePooling(Layer):
    """Base of the layers whose windows follow from the sizes of input and output."""

    rank: int
    _pool: Callable[..., Any]

    def __init__(
        self, output_size: int | Sequence[int], data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.output_size = _checked_output_size(output_size, self.rank)
        self.data_format = config.standardize_data_format(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def call(self, inputs: Any) -> Any:
        return type(self)._pool(inputs, self.output_size, self.data_format)

    def compute_output_shape(self, input_shape: Any) -> Any:
        _, channels = spatial_sizes(input_shape, self.data_format, self.rank)
        return image_shape(input_shape[0], self.output_size, channels, self.data_format)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "output_size": self.output_size,
            "data_format": self.data_format,
        }


def _checked_output_size(output_size: Any, rank: int) -> tuple[int, ...]:
    is_sequence = isinstance(output_size, (list, tuple))
    # For a tuple of a wrong length, Keras raises a ValueError on one axis and a TypeError on
    # several.
    if not isinstance(output_size, int) and not (
        is_sequence and (rank == 1 or len(output_size) == rank)
    ):
        raise TypeError(
            f"`output_size` must be an integer or a tuple of {rank} integers. Received: "
            f"{output_size!r} of type {type(output_size)}"
        )
    return standardize_tuple(output_size, rank, "output_size")


class AdaptiveMaxPooling1D(AdaptivePooling):
    """The largest element of each of as many windows as the output is to have.

    Args:
        output_size: Length of the output.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.

    Input: (n, steps, c), or (n, c, steps) with "channels_first"; any sizes.

    Output: (n, *output_size, c), or (n, c, *output_size).

    Raises:
        TypeError: for an output size that is neither an integer nor one of them.
        ValueError: for one below 1.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.AdaptiveMaxPooling1D(8)(keras.ops.ones((4, 50, 32))).shape
    (4, 8, 32)
    """

    rank = 1
    _pool = staticmethod(ops.adaptive_max_pool)


class AdaptiveMaxPooling2D(AdaptivePooling):
    """The largest element of each of as many windows as the output is to have.

    Args:
        output_size: Height and width of the output, or one number for both.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.

    Input: (n, h, w, c), or (n, c, h, w) with "channels_first"; any sizes.

    Output: (n, *output_size, c), or (n, c, *output_size).

    Raises:
        TypeError: for an output size that is neither an integer nor 2 of them.
        ValueError: for one below 1.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.AdaptiveMaxPooling2D((7, 5))(keras.ops.ones((4, 13, 17, 32))).shape
    (4, 7, 5, 32)
    """

    rank = 2
    _pool = staticmethod(ops.adaptive_max_pool)


class AdaptiveMaxPooling3D(AdaptivePooling):
    """The largest element of each of as many windows as the output is to have.

    Args:
        output_size: Depth, height and width of the output, or one number for all.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.

    Input: (n, d, h, w, c), or (n, c, d, h, w) with "channels_first"; any sizes.

    Output: (n, *output_size, c), or (n, c, *output_size).

    Raises:
        TypeError: for an output size that is neither an integer nor 3 of them.
        ValueError: for one below 1.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.AdaptiveMaxPooling3D(4)(keras.ops.ones((4, 5, 7, 7, 32))).shape
    (4, 4, 4, 4, 32)
    """

    rank = 3
    _pool = staticmethod(ops.adaptive_max_pool)


class AdaptiveAveragePooling1D(AdaptivePooling):
    """The mean of each of as many windows as the output is to have.

    Args:
        output_size: Length of the output.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.

    Input: (n, steps, c), or (n, c, steps) with "channels_first"; any sizes.

    Output: (n, *output_size, c), or (n, c, *output_size).

    Raises:
        TypeError: for an output size that is neither an integer nor one of them.
        ValueError: for one below 1.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.AdaptiveAveragePooling1D(8)(keras.ops.ones((4, 50, 32))).shape
    (4, 8, 32)
    """

    rank = 1
    _pool = staticmethod(ops.adaptive_average_pool)


class AdaptiveAveragePooling2D(AdaptivePooling):
    """The mean of each of as many windows as the output is to have.

    Args:
        output_size: Height and width of the output, or one number for both.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.

    Input: (n, h, w, c), or (n, c, h, w) with "channels_first"; any sizes.

    Output: (n, *output_size, c), or (n, c, *output_size).

    Raises:
        TypeError: for an output size that is neither an integer nor 2 of them.
        ValueError: for one below 1.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.AdaptiveAveragePooling2D((7, 5))(keras.ops.ones((4, 13, 17, 32))).shape
    (4, 7, 5, 32)
    """

    rank = 2
    _pool = staticmethod(ops.adaptive_average_pool)


class AdaptiveAveragePooling3D(AdaptivePooling):
    """The mean of each of as many windows as the output is to have.

    Args:
        output_size: Depth, height and width of the output, or one number for all.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.

    Input: (n, d, h, w, c), or (n, c, d, h, w) with "channels_first"; any sizes.

    Output: (n, *output_size, c), or (n, c, *output_size).

    Raises:
        TypeError: for an output size that is neither an integer nor 3 of them.
        ValueError: for one below 1.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.AdaptiveAveragePooling3D(4)(keras.ops.ones((4, 5, 7, 7, 32))).shape
    (4, 4, 4, 4, 32)
    """

    rank = 3
    _pool = staticmethod(ops.adaptive_average_pool)

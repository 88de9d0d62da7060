"""One number for each channel of whole sequences, images and volumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kerascnn import config, ops
from kerascnn.layers.arguments import image_shape, spatial_sizes
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer


class GlobalPooling(Layer):
    """Base of the layers that reduce all spatial axes."""

    rank: int
    _reduce: Callable[..., Any]

    def __init__(
        self, data_format: str | None = None, keepdims: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.data_format = config.standardize_data_format(data_format)
        self.keepdims = keepdims
        self.input_spec = InputSpec(ndim=self.rank + 2)
        self._build_at_init()

    def call(self, inputs: Any) -> Any:
        first = 1 if self.data_format == "channels_last" else 2
        axes = list(range(first, first + self.rank))
        return type(self)._reduce(inputs, axes, keepdims=self.keepdims)

    def compute_output_shape(self, input_shape: Any) -> Any:
        _, channels = spatial_sizes(input_shape, self.data_format, self.rank)
        sizes = [1] * self.rank if self.keepdims else []
        return image_shape(input_shape[0], sizes, channels, self.data_format)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "data_format": self.data_format,
            "keepdims": self.keepdims,
        }


class GlobalMaxPooling1D(GlobalPooling):
    """The largest element of each channel over the sequence.

    Args:
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        keepdims: Whether the steps stay, with length 1.

    Input: (n, steps, c), or (n, c, steps) with "channels_first".

    Output: (n, c), with keepdims (n, 1, c) or (n, c, 1).

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.GlobalMaxPooling1D()(keras.ops.ones((4, 50, 32))).shape
    (4, 32)
    """

    rank = 1
    _reduce = staticmethod(ops.max)


class GlobalMaxPooling2D(GlobalPooling):
    """The largest element of each channel over the image.

    Args:
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        keepdims: Whether height and width stay, with size 1.

    Input: (n, h, w, c), or (n, c, h, w) with "channels_first".

    Output: (n, c), with keepdims (n, 1, 1, c) or (n, c, 1, 1).

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.GlobalMaxPooling2D()(keras.ops.ones((4, 7, 7, 32))).shape
    (4, 32)
    """

    rank = 2
    _reduce = staticmethod(ops.max)


class GlobalMaxPooling3D(GlobalPooling):
    """The largest element of each channel over the volume.

    Args:
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        keepdims: Whether depth, height and width stay, with size 1.

    Input: (n, d, h, w, c), or (n, c, d, h, w) with "channels_first".

    Output: (n, c), with keepdims (n, 1, 1, 1, c) or (n, c, 1, 1, 1).

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.GlobalMaxPooling3D()(keras.ops.ones((4, 5, 7, 7, 32))).shape
    (4, 32)
    """

    rank = 3
    _reduce = staticmethod(ops.max)


class GlobalAveragePooling1D(GlobalPooling):
    """The mean of each channel over the sequence.

    Args:
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        keepdims: Whether the steps stay, with length 1.

    Input: (n, steps, c), or (n, c, steps) with "channels_first". By keyword a `mask` (n, steps),
    true for the steps that the mean is taken of, by default the input's.

    Output: (n, c), with keepdims (n, 1, c) or (n, c, 1); NaN for a sequence without such a step.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.GlobalAveragePooling1D()(keras.ops.ones((4, 50, 32))).shape
    (4, 32)
    """

    _supports_masking = True

    rank = 1
    _reduce = staticmethod(ops.mean)

    def call(self, inputs: Any, mask: Any = None) -> Any:
        if mask is None:
            return super().call(inputs)
        steps, channels = (1, 2) if self.data_format == "channels_last" else (2, 1)
        counts = ops.expand_dims(ops.cast(ops.cast(mask, "bool"), inputs.dtype), channels)
        # These are shares of the mean. They are known before the inputs, so the sum takes one
        # product, and so does its gradient.
        shares = ops.divide(counts, ops.sum(counts, steps, keepdims=True))
        return ops.sum(ops.multiply(inputs, shares), steps, keepdims=self.keepdims)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return None


class GlobalAveragePooling2D(GlobalPooling):
    """The mean of each channel over the image.

    Args:
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        keepdims: Whether height and width stay, with size 1.

    Input: (n, h, w, c), or (n, c, h, w) with "channels_first".

    Output: (n, c), with keepdims (n, 1, 1, c) or (n, c, 1, 1).

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.GlobalAveragePooling2D()(keras.ops.ones((4, 7, 7, 32))).shape
    (4, 32)
    """

    rank = 2
    _reduce = staticmethod(ops.mean)


class GlobalAveragePooling3D(GlobalPooling):
    """The mean of each channel over the volume.

    Args:
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        keepdims: Whether depth, height and width stay, with size 1.

    Input: (n, d, h, w, c), or (n, c, d, h, w) with "channels_first".

    Output: (n, c), with keepdims (n, 1, 1, 1, c) or (n, c, 1, 1, 1).

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.GlobalAveragePooling3D()(keras.ops.ones((4, 5, 7, 7, 32))).shape
    (4, 32)
    """

    rank = 3
    _reduce = staticmethod(ops.mean)

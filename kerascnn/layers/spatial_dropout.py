"""Random zeros for whole channels."""

from __future__ import annotations

from typing import Any

from kerascnn import config, random
from kerascnn.layers.dropout import Dropout
from kerascnn.layers.input_spec import InputSpec


class _SpatialDropout(Dropout):
    """The base of spatial dropout for 1, 2 and 3 axes."""

    _axes = 1
    data_format = "channels_last"

    def __init__(self, rate: float, seed: Any = None, name: Any = None, dtype: Any = None) -> None:
        super().__init__(rate, seed=seed, name=name, dtype=dtype)
        self.input_spec = InputSpec(ndim=self._axes + 2)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training or self.rate == 0:
            return inputs
        together = (1,) * self._axes
        last = self.data_format == "channels_last"
        shape = (None, *together, None) if last else (None, None, *together)
        return random.dropout(inputs, self.rate, shape, self.seed_generator)

    def get_config(self) -> dict[str, Any]:
        return {
            "rate": self.rate,
            "seed": self.seed if isinstance(self.seed, int) else None,
            "name": self.name,
            "dtype": self.dtype_policy.name,
        }


class _FormattedSpatialDropout(_SpatialDropout):
    """Adds a data format."""

    def __init__(
        self,
        rate: float,
        data_format: str | None = None,
        seed: Any = None,
        name: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(rate, seed=seed, name=name, dtype=dtype)
        self.data_format = config.standardize_data_format(data_format)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "data_format": self.data_format}


class SpatialDropout1D(_SpatialDropout):
    """As `Dropout`, for whole channels of signals: neighbouring steps are too much alike.

    Args:
        rate: From 0 to 1.
        seed: An integer for a generator of this layer's own; by default the program's is used.
        name: Name of the layer.
        dtype: What it computes in.

    Input: (n, length, c)

    Output: the same shape.

    Raises:
        ValueError: for a rate out of range.

    Source: Tompson et al., "Efficient Object Localization Using Convolutional Networks", 2014.

    Example:

    >>> import kerascnn as keras
    >>> y = keras.layers.SpatialDropout1D(0.5)(keras.ops.ones((4, 8, 3)), training=True).numpy()
    >>> bool((y == y[:, :1]).all())
    True
    """


class SpatialDropout2D(_FormattedSpatialDropout):
    """As `Dropout`, for whole channels of images: neighbouring pixels are too much alike.

    Args:
        rate: From 0 to 1.
        data_format: "channels_last" or "channels_first", by default `config.image_data_format()`.
        seed: An integer for a generator of this layer's own; by default the program's is used.
        name: Name of the layer.
        dtype: What it computes in.

    Input: (n, h, w, c), or (n, c, h, w) with "channels_first".

    Output: the same shape.

    Raises:
        ValueError: for a rate out of range.

    Source: Tompson et al., "Efficient Object Localization Using Convolutional Networks", 2014.

    Example:

    >>> import kerascnn as keras
    >>> y = keras.layers.SpatialDropout2D(0.5)(keras.ops.ones((4, 8, 8, 3)), training=True).numpy()
    >>> bool((y == y[:, :1, :1]).all())
    True
    """

    _axes = 2


class SpatialDropout3D(_FormattedSpatialDropout):
    """As `Dropout`, for whole channels of volumes: neighbouring elements are too much alike.

    Args:
        rate: From 0 to 1.
        data_format: "channels_last" or "channels_first", by default `config.image_data_format()`.
        seed: An integer for a generator of this layer's own; by default the program's is used.
        name: Name of the layer.
        dtype: What it computes in.

    Input: (n, d, h, w, c), or (n, c, d, h, w) with "channels_first".

    Output: the same shape.

    Raises:
        ValueError: for a rate out of range.

    Source: Tompson et al., "Efficient Object Localization Using Convolutional Networks", 2014.

    Example:

    >>> import kerascnn as keras
    >>> volumes = keras.ops.ones((2, 4, 4, 4, 3))
    >>> y = keras.layers.SpatialDropout3D(0.5)(volumes, training=True)
    >>> y.shape
    (2, 4, 4, 4, 3)
    """

    _axes = 3

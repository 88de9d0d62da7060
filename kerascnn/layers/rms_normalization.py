"""Normalization of each sample by its size, and to a length of 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.layers.layer import Layer
from kerascnn.layers.layer_normalization import check_axes, checked_axis

# A shorter length counts as this.
_SHORTEST = 1e-12


class RMSNormalization(Layer):
    """Divides each sample by the root of the mean of its squares, then scales it as learned.

    Args:
        axis: The axis or axes that the mean is taken over, each place on which has its own scale.
        epsilon: Added to the mean.

    Input: Any number of axes, with known sizes along `axis`. 16-bit floats are computed in float32.

    Output: As the input.

    Raises:
        ValueError: for an axis that does not exist.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.RMSNormalization()
    >>> layer(keras.ops.convert_to_tensor([[3.0, 3.0]])).numpy().round(2).tolist()
    [[1.0, 1.0]]
    """

    def __init__(
        self, axis: int | Sequence[int] = -1, epsilon: float = 1e-6, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.axis = axis
        self.epsilon = epsilon

    def build(self, input_shape: Any) -> None:
        check_axes(self, self.axis, input_shape)
        self.axis = [self.axis] if isinstance(self.axis, int) else sorted(self.axis)
        shape = tuple(input_shape[axis] for axis in self.axis)
        self.scale = self.add_weight(name="scale", shape=shape, initializer="ones")

    def call(self, x: Any) -> Any:
        return ops.rms_normalization(x, self.scale, self.axis, self.epsilon)

    def compute_output_shape(self, input_shape: Any) -> Any:
        check_axes(self, self.axis, input_shape)
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "axis": self.axis, "epsilon": self.epsilon}


class UnitNormalization(Layer):
    """Divides by the Euclidean length along axes, so that it becomes 1.

    Args:
        axis: The axis or axes that the length is taken over.

    Input: Any number of axes.

    Output: As the input; zeros stay zeros.

    Raises:
        TypeError: for an axis that is neither an integer nor a list.
        ValueError: for one that does not exist.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.UnitNormalization()
    >>> print(layer(keras.ops.convert_to_tensor([[3.0, 4.0]])).numpy())
    [[0.6 0.8]]
    """

    _supports_masking = True

    def __init__(self, axis: int | Sequence[int] = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = checked_axis(axis)
        self._build_at_init()

    def call(self, inputs: Any) -> Any:
        return ops.normalize(inputs, self.axis, order=2, epsilon=_SHORTEST)

    def compute_output_shape(self, input_shape: Any) -> Any:
        check_axes(self, self.axis, input_shape)
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "axis": self.axis}

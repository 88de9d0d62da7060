"""A penalty on what passes."""

from __future__ import annotations

from typing import Any

from kerascnn import regularizers
from kerascnn.layers.layer import Layer


class ActivityRegularization(Layer):
    """Passes its input on and adds a penalty on it to the loss.

    Args:
        l1: Factor of the sum of absolute values, per sample.
        l2: Factor of the sum of squares, per sample.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.ActivityRegularization(l1=0.5)
    >>> layer(keras.ops.ones((2, 3))).shape, float(layer.losses[0].numpy())
    ((2, 3), 1.5)
    """

    _supports_masking = True

    def __init__(self, l1: float = 0.0, l2: float = 0.0, **kwargs: Any) -> None:
        super().__init__(activity_regularizer=regularizers.L1L2(l1=l1, l2=l2), **kwargs)
        self.l1 = l1
        self.l2 = l2
        self._build_at_init()

    def call(self, inputs: Any) -> Any:
        return inputs

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["activity_regularizer"]
        return {**config, "l1": self.l1, "l2": self.l2}

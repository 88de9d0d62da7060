"""A layer that does nothing."""

from __future__ import annotations

from typing import Any

from kerascnn import trees
from kerascnn.layers.layer import Layer
from kerascnn.symbolic.keras_tensor import KerasTensor


class Identity(Layer):
    """Gives back what it is called on, also lists and dictionaries of tensors.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Identity()(keras.ops.ones((2, 3))).shape
    (2, 3)
    """

    _supports_masking = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._build_at_init()

    def call(self, inputs: Any) -> Any:
        return inputs

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def compute_output_spec(self, inputs: Any) -> Any:
        return trees.map_structure(lambda x: KerasTensor(x.shape, x.dtype), inputs)

"""Masking of the steps of a sequence that have a given value."""

from __future__ import annotations

from typing import Any

from kerascnn import dtypes, masks, ops, serialization
from kerascnn.layers.layer import Layer


class Masking(Layer):
    """Masks the steps whose features all have one value, and sets them to 0.

    Layers behind it that use masks leave these steps out; a layer that cannot hand a mask on says
    so by a warning.

    Args:
        mask_value: What all features of a step have that does not count.

    Input: (n, ..., features)

    Output: The same shape, with a mask (n, ...) that is true where a step counts.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.Masking(mask_value=-1.0)
    >>> y = layer(keras.ops.convert_to_tensor([[[1.0, 2.0], [-1.0, -1.0], [-1.0, 3.0]]]))
    >>> y.numpy().tolist()
    [[[1.0, 2.0], [0.0, 0.0], [-1.0, 3.0]]]
    >>> y._keras_mask.numpy().tolist()
    [[True, False, True]]
    """

    _supports_masking = True

    def __init__(self, mask_value: Any = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if isinstance(mask_value, dict) and mask_value.get("config"):
            mask_value = serialization.deserialize_object(mask_value)
        self.mask_value = mask_value
        self._build_at_init()

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return ops.any(ops.not_equal(inputs, self.mask_value), axis=-1)

    def call(self, inputs: Any) -> Any:
        counts = self.compute_mask(inputs)
        if self._masks_float_zeros(inputs):
            outputs = _without_gradients(inputs, counts)
        else:
            outputs = ops.where(ops.expand_dims(counts, -1), inputs, 0)
        masks.set_mask(outputs, counts)
        return outputs

    def _masks_float_zeros(self, inputs: Any) -> bool:
        value = self.mask_value
        return isinstance(value, (int, float)) and value == 0 and dtypes.is_float(inputs.dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "mask_value": self.mask_value}


@ops.custom_gradient
def _without_gradients(inputs: Any, counts: Any) -> Any:
    """Copies the steps. Masked ones are zeros already, so only the gradient has to be masked."""

    def gradient(upstream: Any) -> tuple[Any, None]:
        return upstream * ops.cast(ops.expand_dims(counts, -1), upstream.dtype), None

    # The mask belongs to a new tensor, which shares the memory in a compiled step.
    return ops.reshape(inputs, inputs.shape), gradient

"""A layer for each step of a sequence."""

from __future__ import annotations

from typing import Any

from kerascnn import ops
from kerascnn.layers.layer import _call_parameters
from kerascnn.layers.wrapper import Wrapper


class TimeDistributed(Wrapper):
    """Applies a layer to each step of a sequence, with the same weights.

    Args:
        layer: The layer for one step.

    Input: (n, steps, ...)

    Output: (n, steps, what the layer makes of the rest)

    Raises:
        ValueError: for anything but a layer, and for inputs of less than 3 axes.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.TimeDistributed(keras.layers.Conv2D(8, 3))
    >>> layer(keras.ops.ones((2, 5, 8, 8, 1))).shape
    (2, 5, 6, 6, 8)
    """

    def _step_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        if not isinstance(input_shape, (list, tuple)) or len(input_shape) < 3:
            raise ValueError(
                f"Layer '{self.name}' (TimeDistributed) needs inputs of at least 3 axes: the "
                f"batch, the steps, and those of one step. Received: input_shape={input_shape}"
            )
        return (input_shape[0], *input_shape[2:])

    def build(self, input_shape: Any) -> None:  # type: ignore[override]
        super().build(self._step_shape(input_shape))

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if mask is not None:
            raise ValueError(f"Layer '{self.name}': masks are not available.")
        kwargs = {}
        if "training" in _call_parameters(type(self.layer).call):
            kwargs["training"] = training
        steps = [
            self.layer.call(ops.get_item(inputs, (slice(None), i)), **kwargs)
            for i in range(inputs.shape[1])
        ]
        return ops.stack(steps, axis=1)

    def compute_output_shape(self, input_shape: Any) -> Any:
        inner = self.layer.compute_output_shape(self._step_shape(input_shape))
        return (inner[0], input_shape[1], *inner[1:])

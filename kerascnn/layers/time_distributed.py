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

    Input: (n, steps, ...). By keyword a `mask` (n, steps, ...), by default the input's, of which
    the layer gets that of its step, where its `call` has a `mask`.

    Output: (n, steps, what the layer makes of the rest)

    Raises:
        ValueError: for anything but a layer, for inputs of less than 3 axes, and for a mask of
            another batch or number of steps.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.TimeDistributed(keras.layers.Conv2D(8, 3))
    >>> layer(keras.ops.ones((2, 5, 8, 8, 1))).shape
    (2, 5, 6, 6, 8)
    """

    _supports_masking = True

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
        parameters = _call_parameters(type(self.layer).call)
        kwargs = {"training": training} if "training" in parameters else {}
        if mask is not None:
            self._check_mask(tuple(mask.shape), tuple(inputs.shape))
        steps = []
        for i in range(inputs.shape[1]):
            if mask is not None and "mask" in parameters:
                kwargs["mask"] = ops.get_item(mask, (slice(None), i))
            steps.append(self.layer.call(ops.get_item(inputs, (slice(None), i)), **kwargs))
        return ops.stack(steps, axis=1)

    def _check_mask(self, mask_shape: tuple[int, ...], input_shape: tuple[int, ...]) -> None:
        if mask_shape[:2] != input_shape[:2]:
            raise ValueError(
                f"Layer '{self.name}' (TimeDistributed): the first two sizes of the mask, the "
                f"batch and the steps, must be those of the input. Received: mask.shape="
                f"{mask_shape}, inputs.shape={input_shape}"
            )

    def compute_output_shape(self, input_shape: Any) -> Any:
        inner = self.layer.compute_output_shape(self._step_shape(input_shape))
        return (inner[0], input_shape[1], *inner[1:])

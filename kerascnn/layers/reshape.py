"""Another shape for each sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.layers.layer import Layer
from kerascnn.symbolic.keras_tensor import KerasTensor


class Reshape(Layer):
    """Gives each sample another shape with the same elements.

    Args:
        target_shape: Shape without the batch; one size may be -1 and follows from the others.

    Input: (n, ...)

    Output: (n, *target_shape)

    Raises:
        ValueError: where the number of elements differs.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Reshape((-1, 2))(keras.ops.ones((4, 6))).shape
    (4, 3, 2)
    """

    def __init__(self, target_shape: int | Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        sizes = (target_shape,) if isinstance(target_shape, int) else tuple(target_shape)
        if sizes.count(-1) > 1:
            raise ValueError(
                f"Only one size of `target_shape` can be -1. Received: target_shape={target_shape}"
            )
        self.target_shape = sizes
        self._build_at_init()

    def call(self, inputs: Any) -> Any:
        shape = self.compute_output_shape(tuple(inputs.shape))
        return ops.reshape(inputs, shape)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], *self._resolved(input_shape[1:]))

    def _resolved(self, sizes: Sequence[int | None]) -> tuple[int | None, ...]:
        """Returns the target without -1, or with None where an input size is unknown."""
        if None in sizes:
            return tuple(None if n == -1 else n for n in self.target_shape)
        total = math.prod(n for n in sizes if n is not None)
        known = math.prod(n for n in self.target_shape if n != -1)
        fits = total == known if -1 not in self.target_shape else known and total % known == 0
        if not fits:
            raise ValueError(
                f"Layer '{self.name}': samples of shape {tuple(sizes)} have {total} elements, "
                f"which cannot be arranged as target_shape={self.target_shape}."
            )
        return tuple(total // known if n == -1 else n for n in self.target_shape)

    def compute_output_spec(self, inputs: Any) -> Any:
        return KerasTensor(self.compute_output_shape(inputs.shape), inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "target_shape": self.target_shape}

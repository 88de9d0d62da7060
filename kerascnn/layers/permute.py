"""The axes of each sample in another order, and samples repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer
from kerascnn.symbolic.keras_tensor import KerasTensor


class Permute(Layer):
    """Reorders the axes of each sample.

    Args:
        dims: The old place of each axis, counted from 1 on (0 is the batch).

    Input: (n, ...), with as many more axes as `dims` has entries.

    Output: (n, sizes in the new order)

    Raises:
        ValueError: where `dims` does not hold each number from 1 on once.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Permute((2, 1))(keras.ops.ones((4, 10, 64))).shape
    (4, 64, 10)
    """

    def __init__(self, dims: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dims = tuple(dims)
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise ValueError(
                "`dims` must hold each axis from 1 on once (0 is the batch, which stays). "
                f"Received: dims={dims}"
            )
        self.input_spec = InputSpec(ndim=len(self.dims) + 1)

    def call(self, inputs: Any) -> Any:
        return ops.transpose(inputs, (0, *self.dims))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], *(input_shape[axis] for axis in self.dims))

    def compute_output_spec(self, inputs: Any) -> Any:
        return KerasTensor(self.compute_output_shape(inputs.shape), inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dims": self.dims}


class RepeatVector(Layer):
    """Repeats each sample n times along a new axis.

    Args:
        n: How many times.

    Input: (batch, features)

    Output: (batch, n, features)

    Raises:
        TypeError: for anything but an integer.
        ValueError: for one below 1.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.RepeatVector(3)(keras.ops.ones((4, 32))).shape
    (4, 3, 32)
    """

    def __init__(self, n: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.n = _positive_integer(n, "n")
        self.input_spec = InputSpec(ndim=2)

    def call(self, inputs: Any) -> Any:
        batch, features = inputs.shape
        return ops.broadcast_to(ops.expand_dims(inputs, 1), (batch, self.n, features))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], self.n, input_shape[1])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "n": self.n}


def _positive_integer(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"`{name}` must be an integer. Received: {name}={value!r}")
    if value < 1:
        raise ValueError(f"`{name}` must be positive. Received: {name}={value}")
    return value

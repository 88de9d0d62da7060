"""Activations as layers."""

from __future__ import annotations

from typing import Any

from kerascnn import activations
from kerascnn.layers.layer import Layer


class Activation(Layer):
    """An activation function.

    Args:
        activation: A name or a function.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Activation("relu")(keras.ops.convert_to_tensor([-1.0, 2.0])).numpy().tolist()
    [0.0, 2.0]
    """

    def __init__(self, activation: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation = activations.get(activation)
        self.built = True

    def call(self, inputs: Any) -> Any:
        return self.activation(inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "activation": activations.serialize(self.activation)}


class ReLU(Layer):
    """x where it is above the threshold, else negative_slope * (x - threshold), up to max_value.

    Args:
        max_value: Upper limit, None for none.
        negative_slope: Slope below the threshold.
        threshold: Below it the function is damped.

    Raises:
        ValueError: for a negative or missing number.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.ReLU(max_value=6.0)
    >>> layer(keras.ops.convert_to_tensor([-10.0, 5.0, 10.0])).numpy().tolist()
    [0.0, 5.0, 6.0]
    """

    def __init__(
        self,
        max_value: float | None = None,
        negative_slope: float | None = 0.0,
        threshold: float | None = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if max_value is not None and max_value < 0:
            raise ValueError(f"`max_value` must not be negative. Received: max_value={max_value}")
        if negative_slope is None or negative_slope < 0:
            raise ValueError(
                "`negative_slope` must be a number from 0 on. "
                f"Received: negative_slope={negative_slope}"
            )
        if threshold is None or threshold < 0:
            raise ValueError(
                f"`threshold` must be a number from 0 on. Received: threshold={threshold}"
            )
        self.max_value = max_value
        self.negative_slope = negative_slope
        self.threshold = threshold
        self.built = True

    def call(self, inputs: Any) -> Any:
        return activations.relu(inputs, self.negative_slope, self.max_value, self.threshold)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_value": self.max_value,
            "negative_slope": self.negative_slope,
            "threshold": self.threshold,
        }


class Softmax(Layer):
    """exp(x) divided by its sum: probabilities from scores.

    Args:
        axis: One or several axes to sum over.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Softmax()(keras.ops.zeros((1, 4))).numpy().tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    def __init__(self, axis: Any = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis
        self.built = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        from kerascnn import ops

        if mask is not None:
            # Far enough below everything else that its share is 0.
            inputs = ops.where(mask, inputs, -3e4 if inputs.dtype == "float16" else -1e9)
        return ops.softmax(inputs, self.axis)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "axis": self.axis}

"""Activations as layers."""

from __future__ import annotations

import warnings
from typing import Any

from kerascnn import activations, constraints, initializers, ops, regularizers
from kerascnn.layers.input_spec import InputSpec
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

    _supports_masking = True

    def __init__(self, activation: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation = activations.get(activation)
        self._build_at_init()

    def call(self, inputs: Any) -> Any:
        return self._activated(inputs)

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

    _supports_masking = True

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
        self._build_at_init()

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


class LeakyReLU(Layer):
    """x where it is positive, else negative_slope * x.

    Args:
        negative_slope: Slope below 0.

    Raises:
        ValueError: for a negative or missing slope.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.LeakyReLU(negative_slope=0.5)
    >>> layer(keras.ops.convert_to_tensor([-10.0, 5.0])).numpy().tolist()
    [-5.0, 5.0]
    """

    _supports_masking = True

    def __init__(self, negative_slope: float = 0.3, **kwargs: Any) -> None:
        if "alpha" in kwargs:
            negative_slope = kwargs.pop("alpha")
            warnings.warn("`alpha` is now called `negative_slope`.", stacklevel=2)
        super().__init__(**kwargs)
        if negative_slope is None or negative_slope < 0:
            raise ValueError(
                "`negative_slope` must be a number from 0 on. "
                f"Received: negative_slope={negative_slope}"
            )
        self.negative_slope = negative_slope
        self._build_at_init()

    def call(self, inputs: Any) -> Any:
        return activations.leaky_relu(inputs, self.negative_slope)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "negative_slope": self.negative_slope}


class PReLU(Layer):
    """x where it is positive, else alpha * x, alpha being learned.

    Args:
        alpha_initializer: First values of alpha.
        alpha_regularizer: A penalty on alpha.
        alpha_constraint: A callable that alpha goes through after each update.
        shared_axes: Axes along which all places have the same alpha: [1, 2] for one per channel
            of images.

    Input: (n, ...), whose sizes have to be known except along shared axes.

    Output: the same shape.

    Source: He et al., "Delving Deep into Rectifiers", 2015.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.PReLU(alpha_initializer=keras.initializers.Constant(0.5))
    >>> layer(keras.ops.convert_to_tensor([[-10.0, 5.0]])).numpy().tolist()
    [[-5.0, 5.0]]
    """

    _supports_masking = True

    def __init__(
        self,
        alpha_initializer: Any = "Zeros",
        alpha_regularizer: Any = None,
        alpha_constraint: Any = None,
        shared_axes: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.alpha_initializer = initializers.get(alpha_initializer)
        self.alpha_regularizer = regularizers.get(alpha_regularizer)
        self.alpha_constraint = constraints.get(alpha_constraint)
        if shared_axes is not None:
            shared_axes = (
                list(shared_axes) if isinstance(shared_axes, (list, tuple)) else [shared_axes]
            )
        self.shared_axes: list[int] | None = shared_axes

    def build(self, input_shape: Any) -> None:
        shape = list(input_shape[1:])
        for axis in self.shared_axes or ():
            shape[axis - 1] = 1
        self.alpha = self.add_weight(
            name="alpha",
            shape=shape,
            initializer=self.alpha_initializer,
            regularizer=self.alpha_regularizer,
            constraint=self.alpha_constraint,
        )
        rank = len(input_shape)
        own = [axis for axis in range(1, rank) if axis not in (self.shared_axes or ())]
        axes = {axis: input_shape[axis] for axis in own} if self.shared_axes else {}
        self.input_spec = InputSpec(ndim=rank, axes=axes)

    def call(self, inputs: Any) -> Any:
        below = ops.multiply(self.alpha, ops.relu(ops.negative(inputs)))
        return ops.subtract(ops.relu(inputs), below)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "alpha_initializer": initializers.serialize(self.alpha_initializer),
            "alpha_regularizer": regularizers.serialize(self.alpha_regularizer),
            "alpha_constraint": constraints.serialize(self.alpha_constraint),
            "shared_axes": self.shared_axes,
        }


class ELU(Layer):
    """x where it is positive, else alpha * (exp(x) - 1).

    Args:
        alpha: What it goes to, with its sign turned, for large negative x.

    Source: Clevert et al., "Fast and Accurate Deep Network Learning by Exponential Linear Units",
    2015.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.ELU()(keras.ops.convert_to_tensor([0.0, 5.0])).numpy().tolist()
    [0.0, 5.0]
    """

    _supports_masking = True

    def __init__(self, alpha: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alpha = alpha
        self._build_at_init()

    def call(self, inputs: Any) -> Any:
        return activations.elu(inputs, self.alpha)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "alpha": self.alpha}


class Softmax(Layer):
    """exp(x) divided by its sum: probabilities from scores.

    Args:
        axis: One or several axes to sum over.

    Input: Any shape; as a second argument a `mask` that can be broadcast to it, true (or above
        0.5) for the scores that count.

    Output: the same shape; 0 where the mask is false.

    Raises:
        ValueError: for a mask that cannot be broadcast.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Softmax()(keras.ops.zeros((1, 4))).numpy().tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    _supports_masking = True

    def __init__(self, axis: Any = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis
        self._build_at_init()

    def call(self, inputs: Any, mask: Any = None) -> Any:
        if mask is None:
            return ops.softmax(inputs, self.axis)
        shape, given = tuple(inputs.shape), tuple(mask.shape)
        pairs = zip(reversed(given), reversed(shape), strict=False)
        if len(given) > len(shape) or any(m not in (1, n) for m, n in pairs):
            raise ValueError(
                f"Layer '{self.name}' (Softmax): the mask's sizes must be 1 or those of the input. "
                f"Received: inputs.shape={shape}, mask.shape={given}"
            )
        mask = mask if mask.dtype == "bool" else ops.greater(mask, 0.5)
        # This is so far below everything else that its softmax is 0.
        inputs = ops.where(mask, inputs, -3e4 if inputs.dtype == "float16" else -1e9)
        return ops.where(mask, ops.softmax(inputs, self.axis), 0.0)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "axis": self.axis}

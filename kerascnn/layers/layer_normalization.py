"""Normalization of each sample by its own statistics."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from kerascnn import constraints, initializers, ops, regularizers
from kerascnn.layers.layer import Layer


def checked_axis(axis: Any) -> int | list[int]:
    """Returns an axis, or a list of several; raises a TypeError for anything else."""
    if isinstance(axis, (list, tuple)):
        return list(axis)
    if isinstance(axis, int) and not isinstance(axis, bool):
        return axis
    raise TypeError(f"`axis` must be an integer or a list of them. Received: axis={axis!r}")


def check_axes(layer: Layer, axis: int | Sequence[int], shape: Sequence[Any]) -> None:
    """Raises a ValueError if an axis does not exist in a shape."""
    for entry in [axis] if isinstance(axis, int) else axis:
        if not -len(shape) <= entry < len(shape):
            raise ValueError(
                f"Layer '{layer.name}' ({type(layer).__name__}): axis={axis} does not exist in an "
                f"input of shape {tuple(shape)}."
            )


class LayerNormalization(Layer):
    """Gives each sample mean 0 and variance 1 along axes, then a learned scale and offset.

    Args:
        axis: The axis or axes that the statistics are taken over, each place on which has its own
            scale and offset.
        epsilon: Added to the variance.
        center: Whether an offset beta is learned.
        scale: Whether a scale gamma is learned.
        beta_initializer: First values of beta.
        gamma_initializer: First values of gamma.
        beta_regularizer: A penalty on beta.
        gamma_regularizer: A penalty on gamma.
        beta_constraint: A callable that beta goes through after each update.
        gamma_constraint: A callable that gamma goes through after each update.

    Input: Any number of axes, with known sizes along `axis`. 16-bit floats are computed in float32.

    Output: As the input.

    Raises:
        TypeError: for an axis that is neither an integer nor a list.
        ValueError: for one that does not exist.

    Source: Ba et al., "Layer Normalization", 2016.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.LayerNormalization()
    >>> layer(keras.ops.convert_to_tensor([[1.0, 3.0]])).numpy().round(2).tolist()
    [[-1.0, 1.0]]
    """

    _supports_masking = True

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        rms_scaling = kwargs.pop("rms_scaling", False)
        if rms_scaling:
            warnings.warn(
                "rms_scaling=True divides by the root of the variance, not by the root mean "
                "square; use RMSNormalization for that.",
                stacklevel=2,
            )
        super().__init__(**kwargs)
        self.axis = checked_axis(axis)
        self.epsilon = epsilon
        self.center = center
        self.scale = scale
        self.rms_scaling = rms_scaling
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.beta_regularizer = regularizers.get(beta_regularizer)
        self.gamma_regularizer = regularizers.get(gamma_regularizer)
        self.beta_constraint = constraints.get(beta_constraint)
        self.gamma_constraint = constraints.get(gamma_constraint)
        self.autocast = False

    def build(self, input_shape: Any) -> None:
        check_axes(self, self.axis, input_shape)
        self.axis = [self.axis] if isinstance(self.axis, int) else sorted(self.axis)
        shape = tuple(input_shape[axis] for axis in self.axis)
        self.gamma = self.beta = None
        if self.scale or self.rms_scaling:
            self.gamma = self.add_weight(
                name="gamma",
                shape=shape,
                initializer=self.gamma_initializer,
                regularizer=self.gamma_regularizer,
                constraint=self.gamma_constraint,
                autocast=False,
            )
        if self.center and not self.rms_scaling:
            self.beta = self.add_weight(
                name="beta",
                shape=shape,
                initializer=self.beta_initializer,
                regularizer=self.beta_regularizer,
                constraint=self.beta_constraint,
                autocast=False,
            )

    def call(self, inputs: Any) -> Any:
        kwargs = {"rms_scaling": True} if self.rms_scaling else {}
        with warnings.catch_warnings():  # the layer has already warned when it was made
            warnings.simplefilter("ignore")
            outputs = ops.layer_normalization(
                inputs, self.gamma, self.beta, self.axis, self.epsilon, **kwargs
            )
        return ops.cast(outputs, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        check_axes(self, self.axis, input_shape)
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "axis": self.axis,
            "epsilon": self.epsilon,
            "center": self.center,
            "scale": self.scale,
            "rms_scaling": self.rms_scaling,
            "beta_initializer": initializers.serialize(self.beta_initializer),
            "gamma_initializer": initializers.serialize(self.gamma_initializer),
            "beta_regularizer": regularizers.serialize(self.beta_regularizer),
            "gamma_regularizer": regularizers.serialize(self.gamma_regularizer),
            "beta_constraint": constraints.serialize(self.beta_constraint),
            "gamma_constraint": constraints.serialize(self.gamma_constraint),
        }

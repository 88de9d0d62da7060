"""Normalization of each sample in groups of channels."""

from __future__ import annotations

from typing import Any

from kerascnn import constraints, dtypes, initializers, ops, regularizers
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer
from kerascnn.layers.layer_normalization import check_axes
from kerascnn.ops import dispatch


class GroupNormalization(Layer):
    """Gives each group of channels of each sample mean 0 and variance 1.

    Then each channel gets a learned scale and offset. One group is layer normalization over
    everything, as many groups as channels are instance normalization.

    Args:
        groups: Number of groups, -1 for one for each channel.
        axis: The axis of the channels.
        epsilon: Added to the variance.
        center: Whether an offset beta is learned.
        scale: Whether a scale gamma is learned.
        beta_initializer: First values of beta.
        gamma_initializer: First values of gamma.
        beta_regularizer: A penalty on beta.
        gamma_regularizer: A penalty on gamma.
        beta_constraint: A callable that beta goes through after each update.
        gamma_constraint: A callable that gamma goes through after each update.

    Input: Any number of axes, with a known size along `axis`. 16-bit floats are computed in
    float32.

    Output: As the input.

    Raises:
        ValueError: for a number of groups that is neither positive nor -1, or into which the
            channels do not divide.

    Source: Wu and He, "Group Normalization", 2018.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.GroupNormalization(groups=2)(keras.ops.ones((4, 8, 8, 6))).shape
    (4, 8, 8, 6)
    """

    _supports_masking = True

    def __init__(
        self,
        groups: int = 32,
        axis: int = -1,
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
        if not isinstance(groups, int) or isinstance(groups, bool) or groups < -1 or not groups:
            raise ValueError(
                f"`groups` must be a positive integer, or -1. Received: groups={groups!r}"
            )
        super().__init__(**kwargs)
        self.groups = groups
        self.axis = axis
        self.epsilon = epsilon
        self.center = center
        self.scale = scale
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.beta_regularizer = regularizers.get(beta_regularizer)
        self.gamma_regularizer = regularizers.get(gamma_regularizer)
        self.beta_constraint = constraints.get(beta_constraint)
        self.gamma_constraint = constraints.get(gamma_constraint)
        self.autocast = False

    def build(self, input_shape: Any) -> None:
        check_axes(self, self.axis, input_shape)
        channels = input_shape[self.axis]
        if channels is None:
            raise ValueError(
                f"Layer '{self.name}' needs to know the size of axis {self.axis}. Received: "
                f"input_shape={tuple(input_shape)}"
            )
        if self.groups == -1:
            self.groups = channels
        if channels % self.groups:
            raise ValueError(
                f"Layer '{self.name}': {channels} channels do not divide into groups={self.groups}."
            )
        self.input_spec = InputSpec(ndim=len(input_shape), axes={self.axis: channels})
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_weight(
                name="gamma",
                shape=(channels,),
                initializer=self.gamma_initializer,
                regularizer=self.gamma_regularizer,
                constraint=self.gamma_constraint,
                autocast=False,
            )
        if self.center:
            self.beta = self.add_weight(
                name="beta",
                shape=(channels,),
                initializer=self.beta_initializer,
                regularizer=self.beta_regularizer,
                constraint=self.beta_constraint,
                autocast=False,
            )

    def call(self, inputs: Any) -> Any:
        shape = tuple(inputs.shape)
        axis = self.axis % len(shape)
        x = ops.cast(inputs, dtypes.result_type(inputs.dtype, "float32"))
        is_last = 1 < axis == len(shape) - 1 and 0 not in shape
        y = self._normalize_last(x) if is_last else self._normalize(x, axis)
        return ops.cast(y, self.compute_dtype)

    def _normalize_last(self, x: Any) -> Any:
        """Normalizes where the channels are the last axis, behind others.

        Elements of a group are not neighbours in memory then. Statistics of each channel of each
        sample are taken first, in one pass, and those of the groups from them.
        """
        shape = tuple(x.shape)
        in_groups = (shape[0], self.groups, shape[-1] // self.groups)
        moments = dispatch.apply("column_moments", [x], {"outer_axes": 1})
        mean, variance = (ops.reshape(moment, in_groups) for moment in moments)
        if in_groups[2] > 1:
            mean_of_channel = mean
            mean = ops.mean(mean_of_channel, 2, keepdims=True)
            apart = ops.square(ops.subtract(mean_of_channel, mean))
            variance = ops.mean(ops.add(variance, apart), 2, keepdims=True)
        scale = ops.rsqrt(ops.add(variance, self.epsilon))
        if self.gamma is not None:
            scale = ops.multiply(scale, self._in_groups(self.gamma, x.dtype))
        else:
            scale = ops.broadcast_to(scale, in_groups)
        # The difference is 0, and has the gradient by the mean: that is a sum of the output's
        # gradient alone, as the shift's is, and needs no other pass over the elements.
        origin = ops.stop_gradient(ops.broadcast_to(mean, in_groups))
        shift = ops.multiply(ops.subtract(origin, mean), scale)
        if self.beta is not None:
            shift = ops.add(shift, self._in_groups(self.beta, x.dtype))
        of_channels = (shape[0], *[1] * (len(shape) - 2), shape[-1])
        origin, scale, shift = (ops.reshape(each, of_channels) for each in (origin, scale, shift))
        return ops.add(ops.multiply(ops.subtract(x, origin), scale), shift)

    def _in_groups(self, weight: Any, dtype: str) -> Any:
        return ops.cast(ops.reshape(weight, (1, self.groups, -1)), dtype)

    def _normalize(self, x: Any, axis: int) -> Any:
        """Normalizes whatever the channels' axis is."""
        shape = tuple(x.shape)
        per_group = shape[axis] // self.groups
        x = ops.reshape(x, (*shape[:axis], self.groups, per_group, *shape[axis + 1 :]))
        axes = [a for a in range(1, len(shape) + 1) if a != axis]
        mean = ops.mean(x, axes, keepdims=True)
        centred = ops.subtract(x, mean)
        variance = ops.mean(ops.square(centred), axes, keepdims=True)
        y = ops.multiply(centred, ops.rsqrt(ops.add(variance, self.epsilon)))
        of_channels = [1] * len(x.shape)
        of_channels[axis : axis + 2] = [self.groups, per_group]
        if self.gamma is not None:
            y = ops.multiply(y, ops.cast(ops.reshape(self.gamma, of_channels), y.dtype))
        if self.beta is not None:
            y = ops.add(y, ops.cast(ops.reshape(self.beta, of_channels), y.dtype))
        return ops.reshape(y, shape)

    def compute_output_shape(self, input_shape: Any) -> Any:
        check_axes(self, self.axis, input_shape)
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "groups": self.groups,
            "axis": self.axis,
            "epsilon": self.epsilon,
            "center": self.center,
            "scale": self.scale,
            "beta_initializer": initializers.serialize(self.beta_initializer),
            "gamma_initializer": initializers.serialize(self.gamma_initializer),
            "beta_regularizer": regularizers.serialize(self.beta_regularizer),
            "gamma_regularizer": regularizers.serialize(self.gamma_regularizer),
            "beta_constraint": constraints.serialize(self.beta_constraint),
            "gamma_constraint": constraints.serialize(self.gamma_constraint),
        }

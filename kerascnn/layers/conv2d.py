"""Convolution of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import activations, config, constraints, initializers, ops, regularizers
from kerascnn.layers.arguments import (
    image_shape,
    spatial_sizes,
    standardize_padding,
    standardize_pair,
    window_output_sizes,
)
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer


class Conv2D(Layer):
    """Slides `filters` small kernels over images.

    Args:
        filters: Number of kernels, the channels of the output.
        kernel_size: Height and width of a kernel, or one number for both.
        strides: Steps of the kernel.
        padding: "valid" for none, "same" for zeros so that strides 1 keep the image's size.
        data_format: "channels_last" or "channels_first", by default `config.image_data_format()`.
        dilation_rate: Steps between the elements of a kernel; only with strides 1.
        groups: The channels are cut into so many groups, each with filters of its own.
        activation: A name or a function, None for none.
        use_bias: Whether a number is added to each filter's output.
        kernel_initializer: First values of the kernels.
        bias_initializer: First values of the bias.
        kernel_regularizer: A penalty on the kernels.
        bias_regularizer: A penalty on the bias.
        activity_regularizer: A penalty on the output.
        kernel_constraint: A callable that the kernels go through after each update.
        bias_constraint: A callable that the bias goes through after each update.

    Input: (n, h, w, c), or (n, c, h, w) with "channels_first"; any floating dtype.

    Output: (n, oh, ow, filters), or (n, filters, oh, ow).

    Raises:
        ValueError: for arguments that make no sense together, channels that do not divide into
            the groups, and images smaller than the kernel.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((4, 28, 28, 3))
    >>> keras.layers.Conv2D(16, 3, activation="relu")(x).shape
    (4, 26, 26, 16)
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = (1, 1),
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: int | Sequence[int] = (1, 1),
        groups: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self.filters = filters
        self.kernel_size = standardize_pair(kernel_size, "kernel_size")
        self.strides = standardize_pair(strides, "strides")
        self.padding = standardize_padding(padding)
        self.data_format = config.standardize_data_format(data_format)
        self.dilation_rate = standardize_pair(dilation_rate, "dilation_rate")
        self.groups = groups
        self.activation = activations.get(activation)
        self.use_bias = use_bias
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self.input_spec = InputSpec(min_ndim=4, max_ndim=4)
        self._check_arguments()

    def _check_arguments(self) -> None:
        for name in ("filters", "groups"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
        if self.filters % self.groups:
            raise ValueError(
                f"`filters` must be a multiple of `groups`. Received: filters={self.filters}, "
                f"groups={self.groups}"
            )
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ValueError(
                "`strides` and `dilation_rate` cannot both be above 1. Received: "
                f"strides={self.strides}, dilation_rate={self.dilation_rate}"
            )

    def build(self, input_shape: Any) -> None:
        _, channels = spatial_sizes(input_shape, self.data_format)
        axis = -1 if self.data_format == "channels_last" else 1
        if channels is None:
            raise ValueError(
                f"Layer '{self.name}' needs to know the number of channels of its input. Received: "
                f"input_shape={tuple(input_shape)}"
            )
        if channels % self.groups:
            raise ValueError(
                f"Layer '{self.name}': the channels of the input must divide into groups="
                f"{self.groups}. Received: {channels} channels, input_shape={tuple(input_shape)}"
            )
        self.input_spec = InputSpec(min_ndim=4, max_ndim=4, axes={axis: channels})
        self.compute_output_shape(input_shape)  # raises where the kernel does not fit
        self.kernel = self.add_weight(
            name="kernel",
            shape=(*self.kernel_size, channels // self.groups, self.filters),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=(self.filters,),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    def call(self, inputs: Any) -> Any:
        outputs = ops.conv_bias(
            inputs,
            self.kernel,
            self.bias,
            self.strides,
            self.padding,
            self.data_format,
            self.dilation_rate,
        )
        return self.activation(outputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        sizes, _ = spatial_sizes(input_shape, self.data_format)
        sizes = window_output_sizes(
            self, sizes, self.kernel_size, self.strides, self.padding, self.dilation_rate
        )
        return image_shape(input_shape[0], sizes, self.filters, self.data_format)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
            "data_format": self.data_format,
            "dilation_rate": self.dilation_rate,
            "groups": self.groups,
            "activation": activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "kernel_regularizer": regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": regularizers.serialize(self.bias_regularizer),
            "activity_regularizer": regularizers.serialize(self.activity_regularizer),
            "kernel_constraint": constraints.serialize(self.kernel_constraint),
            "bias_constraint": constraints.serialize(self.bias_constraint),
        }

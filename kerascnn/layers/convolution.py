"""Convolution of sequences, images and volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.layers.arguments import positive_integer
from kerascnn.layers.base_convolution import BaseConvolution
from kerascnn.layers.defaults import defaults
from kerascnn.layers.low_rank import LowRankAdaptation


class BaseConv(LowRankAdaptation, BaseConvolution):
    """Base of `Conv1D`, `Conv2D` and `Conv3D`."""

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: int | Sequence[int] = 1,
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
        # As in Keras, these are not part of the signature.
        adaptation = kwargs.pop("lora_rank", None), kwargs.pop("lora_alpha", None)
        super().__init__(
            kernel_size,
            strides,
            padding,
            data_format,
            dilation_rate,
            activation,
            use_bias,
            bias_initializer,
            bias_regularizer,
            activity_regularizer,
            bias_constraint,
            **kwargs,
        )
        self._set_kernel("kernel", kernel_initializer, kernel_regularizer, kernel_constraint)
        self.filters = positive_integer(filters, "filters")
        self.groups = positive_integer(groups, "groups")
        if self.filters % self.groups:
            raise ValueError(
                f"`filters` must be a multiple of `groups`. Received: filters={self.filters}, "
                f"groups={self.groups}"
            )
        self._check_steps()
        self._init_adaptation(*adaptation)

    def _may_be_causal(self) -> bool:
        return self.rank == 1

    def build(self, input_shape: Any) -> None:
        channels = self._known_channels(input_shape)
        if channels % self.groups:
            raise ValueError(
                f"Layer '{self.name}': the channels of the input must divide into groups="
                f"{self.groups}. Received: {channels} channels, input_shape={tuple(input_shape)}"
            )
        shape = (*self.kernel_size, channels // self.groups, self.filters)
        self._kernel = self._add_kernel(shape, "kernel")
        self._add_bias(self.filters)
        self._adapt_as_asked()

    @property
    def kernel(self) -> Any:
        """The kernels, (*kernel_size, channels / groups, filters); with `enable_lora`, adapted."""
        return self._adapted_value()

    def convolution_op(self, inputs: Any, kernel: Any) -> Any:
        """The convolution without bias and activation; subclasses may override it."""
        return ops.conv_bias(
            inputs,
            kernel,
            None,
            self.strides,
            self.padding,
            self.data_format,
            self.dilation_rate,
        )

    def call(self, inputs: Any) -> Any:
        if type(self).convolution_op is not BaseConv.convolution_op:
            return self._activated(self._plus_bias(self.convolution_op(inputs, self.kernel)))
        outputs = ops.conv_bias(
            inputs,
            self.kernel,
            self.bias,
            self.strides,
            self.padding,
            self.data_format,
            self.dilation_rate,
        )
        return self._activated(outputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self._window_output_shape(input_shape, self.filters)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "filters": self.filters, "groups": self.groups}


class Conv1D(BaseConv):
    """Slides `filters` small kernels over sequences.

    Args:
        filters: Number of kernels, the channels of the output.
        kernel_size: Length of a kernel.
        strides: Steps of the kernel.
        padding: "valid" for none, "same" for zeros so that strides 1 keep the input's length,
            "causal" for all of these zeros before the input, so that no output sees later steps.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
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
        **kwargs: `lora_rank` and `lora_alpha` as of `Dense`, and those of every layer.

    Input: (n, steps, c), or (n, c, steps) with "channels_first"; any floating dtype.

    Output: (n, outputs, filters), or (n, filters, outputs).

    Raises:
        ValueError: for arguments that make no sense together, channels that do not divide into
            the groups, and sequences smaller than the kernel.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((4, 100, 8))
    >>> keras.layers.Conv1D(16, 5, strides=2, padding="causal")(x).shape
    (4, 50, 16)
    """

    rank = 1


@defaults(strides=(1, 1), dilation_rate=(1, 1))
class Conv2D(BaseConv):
    """Slides `filters` small kernels over images.

    Args:
        filters: Number of kernels, the channels of the output.
        kernel_size: Height and width of a kernel, or one number for both.
        strides: Steps of the kernel.
        padding: "valid" for none, "same" for zeros so that strides 1 keep the input's size.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
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
        **kwargs: `lora_rank` and `lora_alpha` as of `Dense`, and those of every layer.

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

    rank = 2


@defaults(strides=(1, 1, 1), dilation_rate=(1, 1, 1))
class Conv3D(BaseConv):
    """Slides `filters` small kernels over volumes.

    Args:
        filters: Number of kernels, the channels of the output.
        kernel_size: Depth, height and width of a kernel, or one number for all.
        strides: Steps of the kernel.
        padding: "valid" for none, "same" for zeros so that strides 1 keep the input's size.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
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
        **kwargs: `lora_rank` and `lora_alpha` as of `Dense`, and those of every layer.

    Input: (n, d, h, w, c), or (n, c, d, h, w) with "channels_first"; any floating dtype.

    Output: (n, od, oh, ow, filters), or (n, filters, od, oh, ow).

    Raises:
        ValueError: for arguments that make no sense together, channels that do not divide into
            the groups, and volumes smaller than the kernel.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((4, 8, 28, 28, 1))
    >>> keras.layers.Conv3D(16, 3, padding="same")(x).shape
    (4, 8, 28, 28, 16)
    """

    rank = 3

"""Convolution of each channel by itself, then of all channels at each position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn.layers.arguments import positive_integer
from kerascnn.layers.base_convolution import BaseConvolution
from kerascnn.layers.defaults import defaults
from kerascnn.ops.convolution import separable_conv_bias


class BaseSeparableConv(BaseConvolution):
    """Base of `SeparableConv1D` and `SeparableConv2D`."""

    _kernels = ("depthwise", "pointwise")

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: int | Sequence[int] = 1,
        depth_multiplier: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = "glorot_uniform",
        pointwise_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = None,
        pointwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        depthwise_constraint: Any = None,
        pointwise_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
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
        self._set_kernel(
            "depthwise", depthwise_initializer, depthwise_regularizer, depthwise_constraint
        )
        self._set_kernel(
            "pointwise", pointwise_initializer, pointwise_regularizer, pointwise_constraint
        )
        self.depth_multiplier = positive_integer(depth_multiplier, "depth_multiplier")
        self.filters = positive_integer(filters, "filters")

    def build(self, input_shape: Any) -> None:
        channels = self._known_channels(input_shape)
        shape = (*self.kernel_size, channels, self.depth_multiplier)
        self.depthwise_kernel = self._add_kernel(shape, "depthwise_kernel", "depthwise")
        shape = (*[1] * self.rank, channels * self.depth_multiplier, self.filters)
        self.pointwise_kernel = self._add_kernel(shape, "pointwise_kernel", "pointwise")
        self._add_bias(self.filters)

    def call(self, inputs: Any) -> Any:
        outputs = separable_conv_bias(
            inputs,
            self.depthwise_kernel,
            self.pointwise_kernel,
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
        return {
            **super().get_config(),
            "filters": self.filters,
            "depth_multiplier": self.depth_multiplier,
        }


class SeparableConv1D(BaseSeparableConv):
    """Slides a kernel over each channel of sequences, then mixes the channels of each position.

    Args:
        filters: Number of kernels, the channels of the output.
        kernel_size: Length of a kernel.
        strides: Steps of the kernel.
        padding: "valid" for none, "same" for zeros so that strides 1 keep the input's size.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        dilation_rate: Steps between the elements of a kernel.
        depth_multiplier: Number of kernels for each channel, before these are mixed.
        activation: A name or a function, None for none.
        use_bias: Whether a number is added to each filter's output.
        depthwise_initializer: First values of the kernels of single channels.
        pointwise_initializer: First values of the kernels that mix them.
        bias_initializer: First values of the bias.
        depthwise_regularizer: A penalty on the kernels of single channels.
        pointwise_regularizer: A penalty on the kernels that mix them.
        bias_regularizer: A penalty on the bias.
        activity_regularizer: A penalty on the output.
        depthwise_constraint: A callable that the first kernels go through after each update.
        pointwise_constraint: A callable that the second kernels go through after each update.
        bias_constraint: A callable that the bias goes through after each update.

    Input: (n, steps, c), or (n, c, steps) with "channels_first"; any floating dtype.

    Output: (n, outputs, filters), or (n, filters, outputs).

    Raises:
        ValueError: for arguments that make no sense, and sequences smaller than the kernel.

    Source: Chollet, Xception: Deep Learning with Depthwise Separable Convolutions, CVPR 2017.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((4, 100, 8))
    >>> keras.layers.SeparableConv1D(16, 5)(x).shape
    (4, 96, 16)
    """

    rank = 1


@defaults(strides=(1, 1), dilation_rate=(1, 1))
class SeparableConv2D(BaseSeparableConv):
    """Slides a kernel over each channel of images, then mixes the channels of each position.

    Args:
        filters: Number of kernels, the channels of the output.
        kernel_size: Height and width of a kernel, or one number for both.
        strides: Steps of the kernel.
        padding: "valid" for none, "same" for zeros so that strides 1 keep the input's size.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        dilation_rate: Steps between the elements of a kernel.
        depth_multiplier: Number of kernels for each channel, before these are mixed.
        activation: A name or a function, None for none.
        use_bias: Whether a number is added to each filter's output.
        depthwise_initializer: First values of the kernels of single channels.
        pointwise_initializer: First values of the kernels that mix them.
        bias_initializer: First values of the bias.
        depthwise_regularizer: A penalty on the kernels of single channels.
        pointwise_regularizer: A penalty on the kernels that mix them.
        bias_regularizer: A penalty on the bias.
        activity_regularizer: A penalty on the output.
        depthwise_constraint: A callable that the first kernels go through after each update.
        pointwise_constraint: A callable that the second kernels go through after each update.
        bias_constraint: A callable that the bias goes through after each update.

    Input: (n, h, w, c), or (n, c, h, w) with "channels_first"; any floating dtype.

    Output: (n, oh, ow, filters), or (n, filters, oh, ow).

    Raises:
        ValueError: for arguments that make no sense, and images smaller than the kernel.

    Source: Chollet, Xception: Deep Learning with Depthwise Separable Convolutions, CVPR 2017.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((4, 28, 28, 8))
    >>> keras.layers.SeparableConv2D(16, 3, padding="same")(x).shape
    (4, 28, 28, 16)
    """

    rank = 2

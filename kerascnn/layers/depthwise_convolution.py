"""Convolution of each channel by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn.layers.arguments import positive_integer, spatial_sizes
from kerascnn.layers.base_convolution import BaseConvolution
from kerascnn.layers.defaults import defaults
from kerascnn.ops.convolution import depthwise_conv_bias


class BaseDepthwiseConv(BaseConvolution):
    """Base of `DepthwiseConv1D` and `DepthwiseConv2D`."""

    _kernels = ("depthwise",)

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: str = "valid",
        depth_multiplier: int = 1,
        data_format: str | None = None,
        dilation_rate: int | Sequence[int] = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        depthwise_constraint: Any = None,
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
        self.depth_multiplier = positive_integer(depth_multiplier, "depth_multiplier")

    def build(self, input_shape: Any) -> None:
        channels = self._known_channels(input_shape)
        shape = (*self.kernel_size, channels, self.depth_multiplier)
        self.kernel = self._add_kernel(shape, "kernel", "depthwise")
        self._add_bias(channels * self.depth_multiplier)

    def call(self, inputs: Any) -> Any:
        outputs = depthwise_conv_bias(
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
        _, channels = spatial_sizes(input_shape, self.data_format, self.rank)
        kernels = None if channels is None else channels * self.depth_multiplier
        return self._window_output_shape(input_shape, kernels)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "depth_multiplier": self.depth_multiplier}


class DepthwiseConv1D(BaseDepthwiseConv):
    """Slides kernels of its own over each channel of sequences.

    Args:
        kernel_size: Length of a kernel.
        strides: Steps of the kernel.
        padding: "valid" for none, "same" for zeros so that strides 1 keep the input's size.
        depth_multiplier: Number of kernels for each channel.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        dilation_rate: Steps between the elements of a kernel.
        activation: A name or a function, None for none.
        use_bias: Whether a number is added to each kernel's output.
        depthwise_initializer: First values of the kernels.
        bias_initializer: First values of the bias.
        depthwise_regularizer: A penalty on the kernels.
        bias_regularizer: A penalty on the bias.
        activity_regularizer: A penalty on the output.
        depthwise_constraint: A callable that the kernels go through after each update.
        bias_constraint: A callable that the bias goes through after each update.

    Input: (n, steps, c), or (n, c, steps) with "channels_first"; any floating dtype.

    Output: (n, outputs, c * depth_multiplier), or (n, c * depth_multiplier, outputs).

    Raises:
        ValueError: for arguments that make no sense, and sequences smaller than the kernel.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((4, 100, 8))
    >>> keras.layers.DepthwiseConv1D(5, depth_multiplier=2)(x).shape
    (4, 96, 16)
    """

    rank = 1


@defaults(strides=(1, 1), dilation_rate=(1, 1))
class DepthwiseConv2D(BaseDepthwiseConv):
    """Slides kernels of its own over each channel of images.

    Args:
        kernel_size: Height and width of a kernel, or one number for both.
        strides: Steps of the kernel.
        padding: "valid" for none, "same" for zeros so that strides 1 keep the input's size.
        depth_multiplier: Number of kernels for each channel.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        dilation_rate: Steps between the elements of a kernel.
        activation: A name or a function, None for none.
        use_bias: Whether a number is added to each kernel's output.
        depthwise_initializer: First values of the kernels.
        bias_initializer: First values of the bias.
        depthwise_regularizer: A penalty on the kernels.
        bias_regularizer: A penalty on the bias.
        activity_regularizer: A penalty on the output.
        depthwise_constraint: A callable that the kernels go through after each update.
        bias_constraint: A callable that the bias goes through after each update.

    Input: (n, h, w, c), or (n, c, h, w) with "channels_first"; any floating dtype.

    Output: (n, oh, ow, c * depth_multiplier), or (n, c * depth_multiplier, oh, ow).

    Raises:
        ValueError: for arguments that make no sense, and images smaller than the kernel.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((4, 28, 28, 8))
    >>> keras.layers.DepthwiseConv2D(3, padding="same")(x).shape
    (4, 28, 28, 8)
    """

    rank = 2

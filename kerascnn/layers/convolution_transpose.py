"""Transposed convolution of sequences, images and volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops
from kerascnn.layers.arguments import (
    image_shape,
    positive_integer,
    spatial_sizes,
    standardize_tuple,
)
from kerascnn.layers.base_convolution import BaseConvolution
from kerascnn.layers.defaults import defaults
from kerascnn.ops.convolution import transposed_crop


class BaseConvTranspose(BaseConvolution):
    """Base of `Conv1DTranspose`, `Conv2DTranspose` and `Conv3DTranspose`."""

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: str = "valid",
        output_padding: int | Sequence[int] | None = None,
        data_format: str | None = None,
        dilation_rate: int | Sequence[int] = 1,
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
        self.output_padding = None
        if output_padding is not None:
            self.output_padding = standardize_tuple(
                output_padding, self.rank, "output_padding", allow_zero=True
            )
            if any(e >= s for e, s in zip(self.output_padding, self.strides, strict=True)):
                raise ValueError(
                    "`output_padding` must be less than `strides`. Received: output_padding="
                    f"{self.output_padding}, strides={self.strides}"
                )
        self._check_steps()

    def build(self, input_shape: Any) -> None:
        channels = self._known_channels(input_shape)
        self.kernel = self._add_kernel((*self.kernel_size, self.filters, channels), "kernel")
        self._add_bias(self.filters)

    def call(self, inputs: Any) -> Any:
        outputs = ops.conv_transpose(
            inputs,
            self.kernel,
            self.strides,
            self.padding,
            self.output_padding,
            self.data_format,
            self.dilation_rate,
        )
        return self._activated(self._plus_bias(outputs))

    def compute_output_shape(self, input_shape: Any) -> Any:
        sizes, _ = spatial_sizes(input_shape, self.data_format, self.rank)
        outputs: list[int | None] = []
        for i, n in enumerate(sizes):
            reach = self.dilation_rate[i] * (self.kernel_size[i] - 1) + 1
            extra = None if self.output_padding is None else self.output_padding[i]
            before, after = transposed_crop(reach, self.strides[i], self.padding, extra)
            outputs.append(
                None if n is None else (n - 1) * self.strides[i] + reach - before - after
            )
        return image_shape(input_shape[0], outputs, self.filters, self.data_format)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filters": self.filters,
            "output_padding": self.output_padding,
        }


class Conv1DTranspose(BaseConvTranspose):
    """The transpose of a convolution of sequences, which makes them larger.

    Args:
        filters: Number of kernels, the channels of the output.
        kernel_size: Length of a kernel.
        strides: How many outputs there are for each input.
        padding: "valid" for all that the kernels reach, "same" for inputs * strides.
        output_padding: How much longer each axis gets than the shortest output that a convolution
            takes back to this input; less than the strides, by default as `padding` says.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        dilation_rate: Steps between the elements of a kernel; only with strides 1.
        activation: A name or a function, None for none.
        use_bias: Whether a number is added to each filter's output.
        kernel_initializer: First values of the kernels.
        bias_initializer: First values of the bias.
        kernel_regularizer: A penalty on the kernels.
        bias_regularizer: A penalty on the bias.
        activity_regularizer: A penalty on the output.
        kernel_constraint: A callable that the kernels go through after each update.
        bias_constraint: A callable that the bias goes through after each update.

    Input: (n, steps, c), or (n, c, steps) with "channels_first"; any floating dtype.

    Output: (n, outputs, filters), or (n, filters, outputs).

    Raises:
        ValueError: for arguments that make no sense together.

    Source: Zeiler et al., Deconvolutional Networks, CVPR 2010.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((4, 50, 8))
    >>> keras.layers.Conv1DTranspose(16, 4, strides=2, padding="same")(x).shape
    (4, 100, 16)
    """

    rank = 1


@defaults(strides=(1, 1), dilation_rate=(1, 1))
class Conv2DTranspose(BaseConvTranspose):
    """The transpose of a convolution of images, which makes them larger.

    Args:
        filters: Number of kernels, the channels of the output.
        kernel_size: Height and width of a kernel, or one number for both.
        strides: How many outputs there are for each input.
        padding: "valid" for all that the kernels reach, "same" for inputs * strides.
        output_padding: How much longer each axis gets than the shortest output that a convolution
            takes back to this input; less than the strides, by default as `padding` says.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        dilation_rate: Steps between the elements of a kernel; only with strides 1.
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
        ValueError: for arguments that make no sense together.

    Source: Zeiler et al., Deconvolutional Networks, CVPR 2010.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((4, 7, 7, 8))
    >>> keras.layers.Conv2DTranspose(16, 3, strides=2, padding="same")(x).shape
    (4, 14, 14, 16)
    """

    rank = 2


class Conv3DTranspose(BaseConvTranspose):
    """The transpose of a convolution of volumes, which makes them larger.

    Args:
        filters: Number of kernels, the channels of the output.
        kernel_size: Depth, height and width of a kernel, or one number for all.
        strides: How many outputs there are for each input.
        padding: "valid" for all that the kernels reach, "same" for inputs * strides.
        data_format: "channels_last" or "channels_first", by default
            `config.image_data_format()`.
        output_padding: How much longer each axis gets than the shortest output that a convolution
            takes back to this input; less than the strides, by default as `padding` says.
        dilation_rate: Steps between the elements of a kernel; only with strides 1.
        activation: A name or a function, None for none.
        use_bias: Whether a number is added to each filter's output.
        kernel_initializer: First values of the kernels.
        bias_initializer: First values of the bias.
        kernel_regularizer: A penalty on the kernels.
        bias_regularizer: A penalty on the bias.
        activity_regularizer: A penalty on the output.
        kernel_constraint: A callable that the kernels go through after each update.
        bias_constraint: A callable that the bias goes through after each update.

    Input: (n, d, h, w, c), or (n, c, d, h, w) with "channels_first"; any floating dtype.

    Output: (n, od, oh, ow, filters), or (n, filters, od, oh, ow).

    Raises:
        ValueError: for arguments that make no sense together.

    Source: Zeiler et al., Deconvolutional Networks, CVPR 2010.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((4, 4, 7, 7, 2))
    >>> keras.layers.Conv3DTranspose(3, 2, strides=2)(x).shape
    (4, 8, 14, 14, 3)
    """

    rank = 3

    def __init__(  # as in Keras, two arguments have the other order
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = (1, 1, 1),
        padding: str = "valid",
        data_format: str | None = None,
        output_padding: int | Sequence[int] | None = None,
        dilation_rate: int | Sequence[int] = (1, 1, 1),
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
        super().__init__(
            filters,
            kernel_size,
            strides,
            padding,
            output_padding,
            data_format,
            dilation_rate,
            activation,
            use_bias,
            kernel_initializer,
            bias_initializer,
            kernel_regularizer,
            bias_regularizer,
            activity_regularizer,
            kernel_constraint,
            bias_constraint,
            **kwargs,
        )

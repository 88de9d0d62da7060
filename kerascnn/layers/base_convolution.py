"""The base of all convolution layers."""

from __future__ import annotations

from typing import Any

from kerascnn import activations, config, constraints, initializers, ops, regularizers
from kerascnn.layers.arguments import (
    image_shape,
    spatial_sizes,
    standardize_padding,
    standardize_tuple,
    window_output_sizes,
)
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.layer import Layer


class BaseConvolution(Layer):
    """A window with steps over `rank` spatial axes, a bias and an activation.

    The kernels, and how they are applied, are for the subclasses to say.
    """

    rank: int
    # These are the kernels' names in the configuration's initializers, regularizers and
    # constraints.
    _kernels: tuple[str, ...] = ("kernel",)

    def __init__(
        self,
        kernel_size: Any,
        strides: Any,
        padding: Any,
        data_format: str | None,
        dilation_rate: Any,
        activation: Any,
        use_bias: bool,
        bias_initializer: Any,
        bias_regularizer: Any,
        activity_regularizer: Any,
        bias_constraint: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        rank = self.rank
        self.kernel_size = standardize_tuple(kernel_size, rank, "kernel_size")
        self.strides = standardize_tuple(strides, rank, "strides")
        self.padding = standardize_padding(padding, allow_causal=self._may_be_causal())
        self.data_format = config.standardize_data_format(data_format)
        self.dilation_rate = standardize_tuple(dilation_rate, rank, "dilation_rate")
        self.activation = activations.get(activation)
        self.use_bias = use_bias
        self.bias_initializer = initializers.get(bias_initializer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.bias_constraint = constraints.get(bias_constraint)
        self.input_spec = InputSpec(min_ndim=rank + 2, max_ndim=rank + 2)

    def _may_be_causal(self) -> bool:
        return False

    def _set_kernel(self, name: str, initializer: Any, regularizer: Any, constraint: Any) -> None:
        setattr(self, f"{name}_initializer", initializers.get(initializer))
        setattr(self, f"{name}_regularizer", regularizers.get(regularizer))
        setattr(self, f"{name}_constraint", constraints.get(constraint))

    def _check_steps(self) -> None:
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ValueError(
                "`strides` and `dilation_rate` cannot both be above 1. Received: "
                f"strides={self.strides}, dilation_rate={self.dilation_rate}"
            )

    def _known_channels(self, input_shape: Any) -> int:
        """Returns the channels of the input, which later inputs must have too."""
        _, channels = spatial_sizes(input_shape, self.data_format, self.rank)
        if channels is None:
            raise ValueError(
                f"Layer '{self.name}' needs to know the number of channels of its input. Received: "
                f"input_shape={tuple(input_shape)}"
            )
        axis = -1 if self.data_format == "channels_last" else 1
        ndim = self.rank + 2
        self.input_spec = InputSpec(min_ndim=ndim, max_ndim=ndim, axes={axis: channels})
        self.compute_output_shape(input_shape)  # raises an error if the window does not fit
        return channels

    def _add_kernel(self, shape: tuple[int, ...], name: str, arguments: str | None = None) -> Any:
        arguments = arguments or name
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=getattr(self, f"{arguments}_initializer"),
            regularizer=getattr(self, f"{arguments}_regularizer"),
            constraint=getattr(self, f"{arguments}_constraint"),
        )

    def _add_bias(self, size: int) -> None:
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=(size,),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    def _plus_bias(self, outputs: Any) -> Any:
        if self.bias is None:
            return outputs
        if self.data_format == "channels_last":
            return ops.add(outputs, self.bias)
        return ops.add(outputs, ops.reshape(self.bias, (-1, *[1] * self.rank)))

    def _window_output_shape(self, input_shape: Any, channels: int | None) -> Any:
        sizes, _ = spatial_sizes(input_shape, self.data_format, self.rank)
        sizes = window_output_sizes(
            self, sizes, self.kernel_size, self.strides, self.padding, self.dilation_rate
        )
        return image_shape(input_shape[0], sizes, channels, self.data_format)

    def get_config(self) -> dict[str, Any]:
        config = {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "strides": self.strides,
            "padding": self.padding,
            "data_format": self.data_format,
            "dilation_rate": self.dilation_rate,
            "activation": activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "bias_regularizer": regularizers.serialize(self.bias_regularizer),
            "activity_regularizer": regularizers.serialize(self.activity_regularizer),
            "bias_constraint": constraints.serialize(self.bias_constraint),
        }
        for name in self._kernels:
            for kind, module in (
                ("initializer", initializers),
                ("regularizer", regularizers),
                ("constraint", constraints),
            ):
                value = getattr(self, f"{name}_{kind}")
                config[f"{name}_{kind}"] = module.serialize(value)
        return config

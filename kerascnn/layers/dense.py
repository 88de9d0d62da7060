"""The fully connected layer."""

from __future__ import annotations

from typing import Any

from kerascnn import activations, constraints, initializers, ops, quantizers, regularizers
from kerascnn.layers.input_spec import InputSpec
from kerascnn.layers.integer_weights import IntegerWeights


class Dense(IntegerWeights):
    """activation(inputs @ kernel + bias) over the last axis.

    Args:
        units: Size of the output's last axis.
        activation: A name or a function, None for none.
        use_bias: Whether a number is added to each unit's output.
        kernel_initializer: First values of the kernel.
        bias_initializer: First values of the bias.
        kernel_regularizer: A penalty on the kernel.
        bias_regularizer: A penalty on the bias.
        activity_regularizer: A penalty on the output.
        kernel_constraint: A callable that the kernel goes through after each update.
        bias_constraint: A callable that the bias goes through after each update.
        lora_rank: Rank of an adaptation that is trained in the kernel's place, None for none; see
            `enable_lora`.
        lora_alpha: The adaptation is scaled by lora_alpha / lora_rank; by default `lora_rank`.
        quantization_config: How the layer becomes int8 where `dtype` asks for that, such as
            "int8_from_float32": a `keras.quantizers.Int8QuantizationConfig`. See `quantize`.

    Input: (n, ..., inputs); any floating dtype.

    Output: (n, ..., units)

    Raises:
        ValueError: for units or a rank that are no positive integer, and a `quantization_config`
            that is none.

    Example:

    >>> import kerascnn as keras
    >>> keras.layers.Dense(10, activation="softmax")(keras.ops.ones((4, 32))).shape
    (4, 10)
    """

    _supports_masking = True
    _is_quantizable = True
    lora_kernel_a: Any

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        quantization_config: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        if isinstance(units, bool) or not isinstance(units, int) or units < 1:
            raise ValueError(f"`units` must be a positive integer. Received: units={units!r}")
        self._init_quantization(quantization_config)
        self.units = units
        self.activation = activations.get(activation)
        self.use_bias = use_bias
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self._init_adaptation(lora_rank, lora_alpha)
        self.input_spec = InputSpec(min_ndim=2)

    def build(self, input_shape: Any) -> None:
        inputs = input_shape[-1]
        if inputs is None:
            raise ValueError(
                f"Layer '{self.name}' needs to know the size of its input's last axis. Received: "
                f"input_shape={tuple(input_shape)}"
            )
        self._build_weight((inputs, self.units), self.kernel_initializer)
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=(self.units,),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.input_spec = InputSpec(min_ndim=2, axes={-1: inputs})
        self._adapt_as_asked()

    @property
    def kernel(self) -> Any:
        """The kernel, (inputs, units); with `enable_lora`, the adapted one."""
        return self._adapted_value()

    def call(self, inputs: Any) -> Any:
        return self._activated(ops.dense(inputs, self.kernel, self.bias))

    def _int8_call(self, inputs: Any) -> Any:
        x = self._integer_product(inputs)
        if self.lora_enabled:
            x = self._with_adaptation(x, ops.matmul(inputs, self.lora_kernel_a))
        if self.bias is not None:
            x = ops.add(x, self.bias)
        return self._activated(x)

    def _inputs_summed(self) -> int:
        return -1

    def _multiply(self, inputs: Any, kernel: Any) -> Any:
        return ops.matmul(inputs, kernel)

    def _multiply_back(self, gradient: Any, kernel: Any) -> Any:
        return ops.matmul(gradient, ops.transpose(kernel))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "activation": activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "kernel_regularizer": regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": constraints.serialize(self.kernel_constraint),
            "bias_constraint": constraints.serialize(self.bias_constraint),
            "quantization_config": quantizers.serialize(self.quantization_config),
        }

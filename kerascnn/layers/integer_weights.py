"""Layers whose large weights can be integers of 8 bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kerascnn import dtype_policies, ops, quantizers
from kerascnn.autodiff import custom_gradient
from kerascnn.layers.low_rank import LowRankAdaptation, beside
from kerascnn.quantizers import AbsMaxQuantizer, QuantizationConfig
from kerascnn.variable import Variable


class IntegerPart(NamedTuple):
    """A weight that becomes integers."""

    name: str
    attribute: str
    shape: tuple[int, ...]
    summed: tuple[int, ...]  # the axes that share a scale


class IntegerWeights(LowRankAdaptation):
    """Base of layers whose kernel or embeddings can be int8, with a scale for each output.

    Inputs are quantized as they come, with a scale for each row; products are formed in integers
    and divided by both scales. The gradient by the inputs is that of the product with the numbers
    that the integers stand for; the integers themselves are not trained.
    """

    _is_quantizable = False  # holds for the class itself, not for subclasses

    def _init_quantization(self, config: Any) -> None:
        if isinstance(config, dict):
            config = quantizers.deserialize(config)
        if config is not None and not isinstance(config, QuantizationConfig):
            raise ValueError(
                f"{type(self).__name__}: quantization_config must be a QuantizationConfig or None. "
                f"Received: quantization_config={config!r}"
            )
        self.quantization_config = config
        self.inputs_quantizer: Any = None

    def _build_weight(self, shape: tuple[int, ...], initializer: Any) -> None:
        """Makes the kernel or the embeddings in the form that the policy asks for."""
        if self.quantization_mode is not None:
            self.quantized_build(shape, self.quantization_mode, self.quantization_config)
            return
        name = self._adapted
        weight = self.add_weight(
            name=name,
            shape=shape,
            initializer=initializer,
            regularizer=getattr(self, f"{name}_regularizer"),
            constraint=getattr(self, f"{name}_constraint"),
        )
        setattr(self, f"_{name}", weight)

    def quantized_build(self, shape: Any, mode: str, config: Any = None) -> None:
        """Makes integer weights and their scales.

        Args:
            shape: Of the kernel or the embeddings.
            mode: "int8".
            config: A `QuantizationConfig`, None for the default one.
        """
        dtype_policies.check_quantization_mode(mode)
        self.inputs_quantizer = QuantizationConfig.activation_quantizer_or_default(
            config, AbsMaxQuantizer()
        )
        for part in self._parts(tuple(shape)):
            kept = [1 if i in part.summed else n for i, n in enumerate(part.shape)]
            scale_shape = self._kept_scale(part, np.ones(kept, "float32")).shape
            weight = self.add_weight(
                part.shape, "zeros", dtype="int8", trainable=False, name=part.name
            )
            scale = self.add_weight(
                tuple(scale_shape), "ones", trainable=False, name=f"{part.name}_scale"
            )
            setattr(self, part.attribute, weight)
            setattr(self, f"{part.name}_scale", scale)
        self._is_quantized = True

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        """Makes the kernel (or the embeddings) int8, for inference; see `Model.quantize`.

        Args:
            mode: "int8".
            type_check: Whether layers of subclasses are refused, whose `call` would not run.
            config: A `keras.quantizers.Int8QuantizationConfig`, in place of `mode` or beside it.

        Raises:
            NotImplementedError: for a layer of a subclass, with `type_check`.
            ValueError: for another mode, a layer that is not built, one that is quantized already,
                one that computes in float16, and quantizers whose scales do not fit the weight.

        Example:

        >>> import kerascnn as keras
        >>> layer = keras.layers.Dense(10)
        >>> layer.build((None, 32))
        >>> layer.quantize("int8")
        >>> layer.kernel.dtype, layer.kernel_scale.shape, layer.dtype_policy.name
        ('int8', (10,), 'int8_from_float32')
        """
        config = quantizers.resolve(mode, config)
        if type_check and not vars(type(self)).get("_is_quantizable", False):
            raise NotImplementedError(self._cannot_be_quantized())
        if not self.built:
            raise ValueError(
                f"Layer '{self.name}' is not built yet. Call it on data, or call "
                "`build(input_shape)`, before `quantize`."
            )
        if self._is_quantized:
            raise ValueError(
                f"Layer '{self.name}' is quantized already (dtype policy "
                f"'{self.dtype_policy.name}')."
            )
        policy = self.dtype_policy
        if policy.quantization_mode is None:
            policy = dtype_policies.QuantizedDTypePolicy(config.mode, policy.name)
        variable = self._adapted_variable()
        found = [self._quantized(part, config) for part in self._parts(variable.shape)]
        self.quantization_config = config
        with beside(variable):
            for part in self._parts(variable.shape):
                old = getattr(self, part.attribute)
                delattr(self, part.attribute)
                self._added = [weight for weight in self._added if weight is not old]
            self.quantized_build(variable.shape, config.mode, config)
        for part, (integers, scale) in zip(self._parts(variable.shape), found, strict=True):
            getattr(self, part.attribute).assign(integers)
            getattr(self, f"{part.name}_scale").assign(scale)
        if self.quantization_mode is None:
            self.dtype_policy = policy

    def _parts(self, shape: tuple[int, ...]) -> list[IntegerPart]:
        """Returns what becomes integers in a kernel of this shape, ordered as in Keras' files."""
        return [IntegerPart(self._adapted, f"_{self._adapted}", shape, self._summed_axes())]

    def _summed_axes(self) -> tuple[int, ...]:
        """Returns the axes of the weight whose elements share a scale."""
        return (0,)

    def _kept_scale(self, part: IntegerPart, scale: Any) -> Any:
        """Removes the axes of size 1 from a scale, as it is stored."""
        return ops.squeeze(scale, part.summed)

    def _scale_of_weight(self, scale: Any) -> Any:
        """Returns the stored scale with the axes of the kernel or the embeddings."""
        return ops.expand_dims(scale, self._summed_axes())

    def _quantized(self, part: IntegerPart, config: QuantizationConfig) -> tuple[Any, Any]:
        default = AbsMaxQuantizer(axis=part.summed)
        quantizer = QuantizationConfig.weight_quantizer_or_default(config, default)
        integers, scale = quantizer(getattr(self, part.attribute), to_numpy=True)
        wanted = tuple(1 if i in part.summed else n for i, n in enumerate(part.shape))
        if tuple(scale.shape) != wanted:
            raise ValueError(
                f"Layer '{self.name}': the weight_quantizer must give scales of shape {wanted} for "
                f"'{part.name}', one for all elements along the axes {list(part.summed)}. Received "
                f"scales of shape {tuple(scale.shape)}; leave `weight_quantizer` out, or set its "
                "`axis`."
            )
        return integers, self._kept_scale(part, scale)

    # The following methods define how layers multiply their inputs.

    def _inputs_summed(self) -> Any:
        """Returns the axes of the inputs over which products are summed."""
        raise NotImplementedError

    def _multiply(self, inputs: Any, kernel: Any) -> Any:
        raise NotImplementedError

    def _multiply_back(self, gradient: Any, kernel: Any) -> Any:
        """Computes the gradient of `_multiply` by the inputs."""
        raise NotImplementedError

    def _scale_of_inputs(self, scale: Any) -> Any:
        """Returns a scale of the inputs with the axes of the outputs."""
        return scale

    def _integer_product(self, inputs: Any) -> Any:
        """Computes the product of the inputs and the kernel in integers."""

        def product(x: Any, kernel: Any, scale: Any) -> Any:
            def gradient(upstream: Any) -> Any:
                numbers = ops.divide(
                    ops.cast(kernel, self.compute_dtype), self._scale_of_weight(scale)
                )
                return self._multiply_back(upstream, numbers), None, None

            divisor = scale
            if self.inputs_quantizer is None:
                kernel_or_numbers = ops.cast(kernel, self.compute_dtype)
            else:
                kernel_or_numbers = kernel
                x, inputs_scale = self.inputs_quantizer(x, axis=self._inputs_summed())
                divisor = ops.multiply(scale, self._scale_of_inputs(inputs_scale))
            sums = ops.cast(self._multiply(x, kernel_or_numbers), self.compute_dtype)
            return ops.divide(sums, divisor), gradient

        name = self._adapted
        weight, scale = (getattr(self, n) for n in (f"_{name}", f"{name}_scale"))
        return custom_gradient(product)(inputs, weight.value, scale.value)

    def _with_adaptation(self, x: Any, product: Any) -> Any:
        """Adds what `enable_lora` trains: `product` is that of the inputs and its first weight."""
        adaptation = ops.multiply(ops.matmul(product, self._factors()[1]), self._scale())
        return ops.cast(ops.add(x, adaptation), self.compute_dtype)

    # Reading and writing files.

    def _weights_in_files(self) -> list[Variable]:
        own = super()._weights_in_files()
        if not self._is_quantized:
            return own
        first = self._adapted_variable()
        return [first, *(variable for variable in own if variable is not first)]

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        if not (self._is_quantized and self.lora_enabled):
            return
        # The sum of weight and adaptation has its own scales.
        weight, scale = self._adapted_variable(), getattr(self, f"{self._adapted}_scale")
        divisor = np.asarray(self._scale_of_weight(scale.numpy()), "float32")
        merged = weight.numpy().astype("float32") / divisor + self._product()
        part = self._parts(weight.shape)[0]
        integers, new_scale = AbsMaxQuantizer(axis=part.summed)(merged, to_numpy=True)
        places = {id(v): str(i) for i, v in enumerate(self._weights_in_files())}
        store[places[id(weight)]] = integers.numpy()
        kept = self._kept_scale(part, new_scale).numpy()
        store[places[id(scale)]] = kept.astype(scale.numpy().dtype)

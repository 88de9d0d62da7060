"""Numbers as integers of 8 bits: what `quantize("int8")` of layers and models is made of.

A quantized number is round(x * scale), with the scale that takes the largest magnitude along some
axes to 127 (Jacob et al., 2018, "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference"; without zero points). Products of such numbers are formed in
integers, and divided by the product of the scales.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import dtype_policies, serialization
from kerascnn.naming import to_snake_case
from kerascnn.narrow_numbers import (
    compute_float8_amax_history,
    compute_float8_scale,
    fake_quant_with_min_max_vars,
    pack_int4,
    unpack_int4,
)


class Quantizer:
    """Base of quantizers: callables that give numbers as integers.

    Args:
        output_dtype: The dtype of what they give.

    Example:

    >>> import kerascnn as keras
    >>> class Signs(keras.Quantizer):
    ...     def __call__(self, x):
    ...         return keras.ops.cast(keras.ops.sign(x), self.output_dtype)
    >>> Signs()(keras.ops.convert_to_tensor([-0.5, 2.0])).numpy()
    array([-1,  1], dtype=int8)
    """

    def __init__(self, output_dtype: str = "int8") -> None:
        self.output_dtype = output_dtype

    def __call__(self, x: Any) -> Any:
        """Returns what stands for `x`; subclasses override it."""
        return x

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Makes one of what `get_config` returned.

        Args:
            config: The dictionary.
        """
        return cls(**config)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make another one.

        Raises:
            NotImplementedError: where a subclass does not override it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement `get_config`.")


def abs_max_quantize(
    inputs: Any,
    axis: int | Sequence[int],
    value_range: Sequence[int] = (-127, 127),
    dtype: str = "int8",
    epsilon: float = 1e-7,
    to_numpy: bool = False,
) -> tuple[Any, Any]:
    """Integers for numbers, with one scale for all that differ in their places along some axes.

    Args:
        inputs: A floating tensor.
        axis: The axis or axes along which the largest magnitude counts.
        value_range: The lowest and the highest integer.
        dtype: Of the integers.
        epsilon: Added to the largest magnitude, against a division by 0.
        to_numpy: Whether NumPy computes it, on the host, so that a device's memory is spared.

    Returns:
        round(inputs * scale) as `dtype`, and scale = value_range[1] / (largest magnitude + epsilon)
        in the dtype of the inputs, whose size along each axis of `axis` is 1.

    Example:

    >>> import kerascnn as keras
    >>> values, scale = keras.quantizers.abs_max_quantize([[0.25, -1.0], [2.0, 0.5]], axis=1)
    >>> values.numpy().tolist(), scale.numpy().round(1).tolist()
    ([[32, -127], [127, 32]], [[127.0], [63.5]])
    """
    from kerascnn import ops

    low, high = value_range
    if to_numpy:
        array = np.asarray(inputs)
        axes = axis if isinstance(axis, int) else tuple(axis)
        factor = np.divide(high, np.add(np.max(np.abs(array), axis=axes, keepdims=True), epsilon))
        integers = np.clip(np.round(np.multiply(array, factor)), low, high).astype(dtype)
        return ops.convert_to_tensor(integers), ops.convert_to_tensor(factor.astype(array.dtype))
    x = ops.convert_to_tensor(inputs)
    largest = ops.max(ops.abs(x), axis=axis, keepdims=True)
    scale = ops.cast(ops.divide(high, ops.add(largest, epsilon)), x.dtype)
    return ops.cast(ops.clip(ops.round(ops.multiply(x, scale)), low, high), dtype), scale


class AbsMaxQuantizer(Quantizer):
    """Scales the largest magnitude along some axes to the end of a range; see `abs_max_quantize`.

    Args:
        axis: The axis or axes, where the call does not give them.
        value_range: The lowest and the highest integer.
        epsilon: Added to the largest magnitude.
        output_dtype: Of the integers.

    Raises:
        ValueError: for a range that int8 does not hold, where that is the dtype.

    Example:

    >>> import kerascnn as keras
    >>> values, _ = keras.quantizers.AbsMaxQuantizer()([[0.0, 0.25, -1.0]], axis=-1)
    >>> values.numpy().tolist()
    [[0, 32, -127]]
    """

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        value_range: Sequence[int] = (-127, 127),
        epsilon: float = 1e-7,
        output_dtype: str = "int8",
    ) -> None:
        super().__init__(output_dtype)
        axes = (axis,) if isinstance(axis, int) else axis
        self.axis = None if axes is None else tuple(axes)
        self.value_range = value_range
        self.epsilon = epsilon
        if output_dtype == "int8" and (value_range[0] < -128 or value_range[1] > 127):
            raise ValueError(
                "AbsMaxQuantizer: int8 holds integers from -128 to 127. Received: "
                f"value_range={value_range}"
            )

    def __call__(self, x: Any, axis: Any = None, to_numpy: bool = False) -> tuple[Any, Any]:
        """Integers for `x` and their scale.

        Args:
            x: A floating tensor.
            axis: By default the constructor's, else the last one.
            to_numpy: As of `abs_max_quantize`.
        """
        if axis is None:
            axis = -1 if self.axis is None else self.axis
        return abs_max_quantize(
            x, axis, self.value_range, self.output_dtype, self.epsilon, to_numpy
        )

    def get_config(self) -> dict[str, Any]:
        config = {
            "value_range": self.value_range,
            "epsilon": self.epsilon,
            "output_dtype": self.output_dtype,
        }
        return config if self.axis is None else {**config, "axis": self.axis}


class QuantizationConfig:
    """Base of what `quantize(config=...)` takes.

    Args:
        weight_quantizer: For weights, None for the layer's own choice.
        activation_quantizer: For inputs, None to leave them as they are.

    Example:

    >>> import kerascnn as keras
    >>> config = keras.quantizers.Int8QuantizationConfig()
    >>> isinstance(config, keras.quantizers.QuantizationConfig), config.mode
    (True, 'int8')
    """

    def __init__(self, weight_quantizer: Any = None, activation_quantizer: Any = None) -> None:
        self.weight_quantizer = weight_quantizer
        self.activation_quantizer = activation_quantizer

    @property
    def mode(self) -> str:
        """What the config is for; subclasses say it."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `mode`.")

    def get_config(self) -> dict[str, Any]:
        """The arguments that make another one like it; values of JSON.

        Returns:
            A dictionary, which `from_config` takes.
        """
        return {
            "weight_quantizer": serialize(self.weight_quantizer),
            "activation_quantizer": serialize(self.activation_quantizer),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Makes one of what `get_config` returned.

        Args:
            config: The dictionary.
        """
        return cls(**{name: deserialize(value) for name, value in config.items()})

    @staticmethod
    def weight_quantizer_or_default(config: QuantizationConfig | None, default: Any) -> Any:
        """The quantizer of weights that a config names, `default` where it names none."""
        named = None if config is None else config.weight_quantizer
        return default if named is None else named

    @staticmethod
    def activation_quantizer_or_default(config: QuantizationConfig | None, default: Any) -> Any:
        """The quantizer of inputs in a config, `default` where there is no config."""
        return default if config is None else config.activation_quantizer


class Int8QuantizationConfig(QuantizationConfig):
    """How layers become int8.

    Args:
        weight_quantizer: For weights; by default `AbsMaxQuantizer` along the axes that products are
            summed over.
        activation_quantizer: For inputs; "default" is `AbsMaxQuantizer` along those axes, None
            leaves them as they are: only the weights are int8 then, and products are in floats.

    Raises:
        ValueError: for a quantizer of weights that does not give int8.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.Dense(2)
    >>> layer.build((None, 3))
    >>> layer.quantize(config=keras.quantizers.Int8QuantizationConfig(activation_quantizer=None))
    >>> [(weight.name, weight.dtype) for weight in layer.weights]
    [('bias', 'float32'), ('kernel', 'int8'), ('kernel_scale', 'float32')]
    """

    def __init__(self, weight_quantizer: Any = None, activation_quantizer: Any = "default") -> None:
        if isinstance(activation_quantizer, str) and activation_quantizer == "default":
            activation_quantizer = AbsMaxQuantizer()
        super().__init__(weight_quantizer, activation_quantizer)
        if weight_quantizer is not None and weight_quantizer.output_dtype != "int8":
            raise ValueError(
                "Int8QuantizationConfig: the weight_quantizer must give int8. Received: "
                f"output_dtype={weight_quantizer.output_dtype!r}"
            )

    @property
    def mode(self) -> str:
        return "int8"


def resolve(mode: Any, config: Any) -> QuantizationConfig:
    """The configuration that the arguments of `quantize` ask for.

    Raises:
        ValueError: where they ask for nothing, for another mode than "int8", or contradict each
            other.
    """
    if isinstance(config, str):
        mode, config = config, None
    if config is None:
        if mode is None:
            raise ValueError("`quantize` needs a `mode`, such as 'int8', or a `config`.")
        dtype_policies.check_quantization_mode(mode)
        return Int8QuantizationConfig()
    if not isinstance(config, QuantizationConfig):
        raise ValueError(
            "`config` must be a QuantizationConfig, such as keras.quantizers."
            f"Int8QuantizationConfig(). Received: config={config!r} (of type {type(config)})"
        )
    dtype_policies.check_quantization_mode(config.mode)
    if mode is not None and mode != config.mode:
        raise ValueError(
            f"`mode` and `config` contradict each other: mode={mode!r}, config.mode={config.mode!r}"
        )
    return config


_CLASSES = (Quantizer, AbsMaxQuantizer, QuantizationConfig, Int8QuantizationConfig)
_BY_NAME: dict[str, Any] = {to_snake_case(cls.__name__): cls for cls in _CLASSES}
_BY_NAME |= {cls.__name__: cls for cls in _CLASSES}


def get(identifier: Any, **kwargs: Any) -> Any:
    """A quantizer from a name, a configuration, a class, an object or None.

    Args:
        identifier: What to find.
        **kwargs: Arguments of a class, where `identifier` names or is one.

    Returns:
        A quantizer, a `QuantizationConfig`, or None for None.

    Raises:
        ValueError: for anything else.

    Example:

    >>> import kerascnn as keras
    >>> keras.quantizers.get("abs_max_quantizer", axis=0).axis
    (0,)
    """
    if identifier is None:
        return None
    found = identifier
    if isinstance(identifier, dict):
        found = deserialize(identifier)
    elif isinstance(identifier, str):
        found = _BY_NAME.get(identifier)
    if inspect.isclass(found):
        found = found(**kwargs)
    if callable(found) or isinstance(found, QuantizationConfig):
        return found
    raise ValueError(
        f"Could not interpret quantizer identifier: {identifier!r}. "
        f"{serialization.did_you_mean(str(identifier), _BY_NAME)} Pass a name, an object or a "
        "dictionary with 'class_name' and 'config'."
    )


def serialize(initializer: Any) -> Any:
    """The configuration of a quantizer, or of a `QuantizationConfig`.

    Args:
        initializer: A quantizer or a `QuantizationConfig`; Keras calls the argument so.
        initializer: A quantizer or a `QuantizationConfig` (Keras names the argument so).

    Returns:
        A dictionary, which `deserialize` makes an equal object of.

    Example:

    >>> import kerascnn as keras
    >>> keras.quantizers.serialize(keras.quantizers.AbsMaxQuantizer(axis=0))["class_name"]
    'AbsMaxQuantizer'
    """
    return serialization.serialize_object(initializer)


def deserialize(config: Any, custom_objects: Any = None) -> Any:
    """The quantizer that a configuration describes.

    Args:
        config: What `serialize` returned.
        custom_objects: Classes of your own by name.

    Returns:
        A quantizer or a `QuantizationConfig`.

    Raises:
        ValueError: for a class that is not known.

    Example:

    >>> import kerascnn as keras
    >>> config = keras.quantizers.serialize(keras.quantizers.AbsMaxQuantizer(axis=0))
    >>> keras.quantizers.deserialize(config).axis
    (0,)
    """
    return serialization.deserialize_object(config, custom_objects, "kerascnn.quantizers")


__all__ = [
    "AbsMaxQuantizer",
    "Int8QuantizationConfig",
    "QuantizationConfig",
    "Quantizer",
    "abs_max_quantize",
    "compute_float8_amax_history",
    "compute_float8_scale",
    "deserialize",
    "fake_quant_with_min_max_vars",
    "get",
    "pack_int4",
    "serialize",
    "unpack_int4",
]

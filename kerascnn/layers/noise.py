"""Noise in training, against overfitting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kerascnn import ops, random
from kerascnn.layers.arguments import make_generator
from kerascnn.layers.layer import Layer

# The limit of selu for large negative inputs (see `ops.selu`).
_SELU_LOWEST = -1.6732632423543772 * 1.0507009873554805


class _Noise(Layer):
    """The base of noise layers: their strength and their random generator."""

    _supports_masking = True

    def __init__(self, name_of_strength: str, strength: float, seed: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(strength, (int, float)) or not 0 <= strength <= 1:
            raise ValueError(
                f"`{name_of_strength}` must be from 0 to 1. Received: "
                f"{name_of_strength}={strength!r}"
            )
        self.seed = seed
        self.seed_generator = make_generator(seed) if strength > 0 else None
        self._build_at_init()

    def _normal(self, inputs: Any, mean: float, stddev: float) -> Any:
        shape = tuple(inputs.shape)
        return random.normal(shape, mean, stddev, self.compute_dtype, self.seed_generator)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def _seed_config(self) -> Any:
        return self.seed if isinstance(self.seed, int) else None


class GaussianNoise(_Noise):
    """In training, adds normally distributed numbers of mean 0.

    Outside of training the inputs pass unchanged.

    Args:
        stddev: Standard deviation, from 0 to 1.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for a standard deviation out of range.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((2, 4))
    >>> bool((keras.layers.GaussianNoise(0.1)(x).numpy() == 1).all())
    True
    """

    def __init__(self, stddev: float, seed: Any = None, **kwargs: Any) -> None:
        super().__init__("stddev", stddev, seed, **kwargs)
        self.stddev = stddev

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training or self.stddev == 0:
            return inputs
        return ops.add(inputs, self._normal(inputs, 0.0, self.stddev))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "stddev": self.stddev, "seed": self._seed_config()}


class GaussianDropout(_Noise):
    """In training, multiplies by normally distributed numbers of mean 1.

    Their variance is rate / (1 - rate), that of `Dropout` with the same rate. Outside of training
    the inputs pass unchanged.

    Args:
        rate: From 0 to 1.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for a rate out of range.

    Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting",
    2014, section 10.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((2, 4))
    >>> bool((keras.layers.GaussianDropout(0.5)(x).numpy() == 1).all())
    True
    """

    def __init__(self, rate: float, seed: Any = None, **kwargs: Any) -> None:
        super().__init__("rate", rate, seed, **kwargs)
        self.rate = rate

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training or self.rate == 0:
            return inputs
        stddev = math.sqrt(self.rate / (1.0 - self.rate))
        return ops.multiply(inputs, self._normal(inputs, 1.0, stddev))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate, "seed": self._seed_config()}


class AlphaDropout(_Noise):
    """In training, sets elements to the lowest value of `selu`, keeping mean 0 and variance 1.

    Outside of training the inputs pass unchanged.

    Args:
        rate: The probability of each element, from 0 to 1.
        noise_shape: Where it has a 1, the elements along that axis share their fate; None keeps
            the input's size.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for a rate out of range.

    Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((2, 4))
    >>> bool((keras.layers.AlphaDropout(0.5)(x).numpy() == 1).all())
    True
    """

    def __init__(
        self,
        rate: float,
        noise_shape: Sequence[int | None] | None = None,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__("rate", rate, seed, **kwargs)
        self.rate = rate
        self.noise_shape = noise_shape

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training or self.rate == 0:
            return inputs
        wanted = self.noise_shape or [None] * len(inputs.shape)
        shape = [n if m is None else m for n, m in zip(inputs.shape, wanted, strict=True)]
        draws = random.uniform(shape, seed=self.seed_generator)
        kept = ops.cast(ops.greater_equal(draws, self.rate), inputs.dtype)
        # This affine function restores mean 0 and variance 1.
        spread = (1 - self.rate) * (1 + self.rate * _SELU_LOWEST**2)
        factor = spread**-0.5 if spread else 0.0
        offset = -factor * _SELU_LOWEST * self.rate
        mixed = ops.add(
            ops.multiply(inputs, kept), ops.multiply(ops.subtract(1.0, kept), _SELU_LOWEST)
        )
        return ops.add(ops.multiply(mixed, factor), offset)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "rate": self.rate,
            "seed": self._seed_config(),
            "noise_shape": self.noise_shape,
        }

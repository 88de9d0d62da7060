"""Random zeros against overfitting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import random
from kerascnn.layers.arguments import make_generator
from kerascnn.layers.layer import Layer


class Dropout(Layer):
    """In training, sets elements to 0 with probability `rate` and divides the rest by 1 - rate.

    Outside of training the inputs pass unchanged. No two layers and no two steps share random
    numbers; `utils.set_random_seed` makes them repeatable.

    Args:
        rate: From 0 to 1.
        noise_shape: Where it has a 1, the elements along that axis share their fate; None keeps
            the input's size.
        seed: An integer for a generator of this layer's own; by default the program's is used.

    Raises:
        ValueError: for a rate out of range, or a noise shape that holds anything but positive
            integers and None.

    Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting",
    2014.

    Example:

    >>> import kerascnn as keras
    >>> x = keras.ops.ones((2, 4))
    >>> bool((keras.layers.Dropout(0.5)(x).numpy() == 1).all())
    True
    """

    _supports_masking = True

    def __init__(
        self,
        rate: float,
        noise_shape: Sequence[int | None] | None = None,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
            raise ValueError(f"`rate` must be from 0 to 1. Received: rate={rate!r}")
        self.rate = rate
        self.seed = seed
        self.noise_shape = self._checked_noise_shape(noise_shape)
        self.seed_generator = make_generator(seed) if rate > 0 else None
        self._build_at_init()

    @staticmethod
    def _checked_noise_shape(noise_shape: Any) -> tuple[int | None, ...] | None:
        if noise_shape is None:
            return None
        if not isinstance(noise_shape, (list, tuple)) or any(
            n is not None and (not isinstance(n, int) or n < 1) for n in noise_shape
        ):
            raise ValueError(
                "`noise_shape` must hold positive integers or None. "
                f"Received: noise_shape={noise_shape!r}"
            )
        return tuple(noise_shape)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training or self.rate == 0:
            return inputs
        return random.dropout(inputs, self.rate, self.noise_shape, self.seed_generator)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "rate": self.rate,
            "seed": self.seed if isinstance(self.seed, int) else None,
            "noise_shape": self.noise_shape,
        }

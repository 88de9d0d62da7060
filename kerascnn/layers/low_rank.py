"""Fine-tuning of a large weight by the product of two small ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from kerascnn import dtypes, initializers, naming, ops
from kerascnn.device import device as on_device
from kerascnn.layers.arguments import positive_integer
from kerascnn.layers.layer import Layer
from kerascnn.variable import Variable


@contextlib.contextmanager
def beside(variable: Variable) -> Iterator[None]:
    """A block in which weights get the path prefix and the device of a variable."""
    scopes = tuple(variable.path.split("/")[:-1])
    with naming.absolute_scope(scopes), on_device(variable.device):
        yield


class LowRankAdaptation(Layer):
    """Base of layers whose kernel or embeddings can be adapted by a product of low rank.

    The weight itself is frozen, weight + lora_alpha / lora_rank * a @ b stands in its place, and
    only `a` (..., lora_rank) and `b` (lora_rank, n) are trained. Files hold the sum, so that they
    fit a layer without adaptation too; after loading the product is 0.
    Source: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, 2021, arXiv:2106.09685.
    """

    _adapted = "kernel"  # the name of the weight

    def _init_adaptation(self, lora_rank: int | None, lora_alpha: float | None) -> None:
        self.lora_rank = positive_integer(lora_rank, "lora_rank") if lora_rank else None
        self.lora_alpha = _checked_alpha(self.lora_rank if lora_alpha is None else lora_alpha)
        self.lora_enabled = False

    def _adapted_variable(self) -> Variable:
        variable = getattr(self, f"_{self._adapted}", None)
        if variable is None:
            raise AttributeError(
                f"Layer '{self.name}' has no `{self._adapted}` before it is built. Call it on "
                "data, or call `build(input_shape)`."
            )
        return variable

    def _factors(self) -> tuple[Variable, Variable]:
        """Returns the weights a and b."""
        a, b = (getattr(self, f"lora_{self._adapted}_{part}") for part in "ab")
        return a, b

    def _adapted_value(self) -> Any:
        """Returns the weight, or the adapted one if there is an adaptation."""
        variable = self._adapted_variable()
        if not self.lora_enabled:
            return variable
        product = ops.multiply(ops.matmul(*self._factors()), self._scale())
        return ops.cast(ops.add(variable, product), self.compute_dtype)

    def _product(self) -> np.ndarray[Any, Any]:
        """Computes on the host what is added to the weight, without rounding products to TF32."""
        a, b = (factor.numpy() for factor in self._factors())
        product: np.ndarray[Any, Any] = np.float32(self._scale()) * (a @ b)
        return product

    def _scale(self) -> float:
        assert self.lora_rank is not None and self.lora_alpha is not None
        return self.lora_alpha / self.lora_rank

    def _adapt_as_asked(self) -> None:
        """At the end of `build`, does what the constructor's `lora_rank` asks for."""
        if self.lora_rank:
            self.enable_lora(self.lora_rank, self.lora_alpha)

    def enable_lora(
        self,
        rank: int,
        lora_alpha: float | None = None,
        a_initializer: Any = "he_uniform",
        b_initializer: Any = "zeros",
    ) -> None:
        """Freezes the kernel (or embeddings) and adds two small weights that adapt it.

        A model that was compiled before has to be compiled again.

        Args:
            rank: Size of the axis over which the small weights are multiplied.
            lora_alpha: The product is scaled by lora_alpha / rank; by default `rank`.
            a_initializer: First values of `lora_kernel_a` (`lora_embeddings_a`), the weight's
                shape with `rank` as the last size, float32.
            b_initializer: First values of `lora_kernel_b` (`lora_embeddings_b`),
                (rank, last size of the weight), float32.

        Raises:
            ValueError: for a layer that is not built, is adapted already or has a constraint on
                the weight, and a rank that is no positive integer.

        Example:

        >>> import kerascnn as keras
        >>> layer = keras.layers.Dense(10)
        >>> layer.build((None, 32))
        >>> layer.enable_lora(2)
        >>> [weight.name for weight in layer.trainable_weights]
        ['bias', 'lora_kernel_a', 'lora_kernel_b']
        """
        name = self._adapted
        if getattr(self, f"{name}_constraint") is not None:
            raise ValueError(
                f"Layer '{self.name}': a {name} with a constraint cannot be adapted. Leave out "
                f"`{name}_constraint`."
            )
        if not self.built:
            raise ValueError(
                f"Layer '{self.name}' is not built yet. Call it on data, or call "
                "`build(input_shape)`, before `enable_lora`."
            )
        if self.lora_enabled:
            raise ValueError(f"Layer '{self.name}' is adapted already (rank {self.lora_rank}).")
        rank = positive_integer(rank, "rank")
        alpha = _checked_alpha(rank if lora_alpha is None else lora_alpha)
        variable = self._adapted_variable()
        shapes = {"a": (*variable.shape[:-1], rank), "b": (rank, variable.shape[-1])}
        given = {"a": initializers.get(a_initializer), "b": initializers.get(b_initializer)}
        with beside(variable):
            factors = {
                part: self.add_weight(
                    name=f"lora_{name}_{part}",
                    shape=shape,
                    initializer=given[part],
                    dtype="float32",  # 16 bits would lose small steps of training
                    regularizer=getattr(self, f"{name}_regularizer"),
                )
                for part, shape in shapes.items()
            }
        for factor in factors.values():
            setattr(self, factor.name, factor)
        variable.trainable = False
        self.lora_enabled, self.lora_rank, self.lora_alpha = True, rank, alpha

    def _weights_in_files(self) -> list[Variable]:
        own = super()._weights_in_files()
        if not self.lora_enabled:
            return own
        factors = [id(factor) for factor in self._factors()]
        return [variable for variable in own if id(variable) not in factors]

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        if not self.lora_enabled:
            return
        variable = self._adapted_variable()
        place = [id(v) for v in self._weights_in_files()].index(id(variable))
        merged = np.asarray(store[str(place)], "float32") + self._product()
        store[str(place)] = merged.astype(dtypes.numpy_dtype(variable.core.dtype))

    def _after_loading(self) -> None:
        if self.lora_enabled:
            for factor in self._factors():
                factor.assign(np.zeros(factor.shape, "float32"))

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if self.lora_rank:
            config.update(lora_rank=self.lora_rank, lora_alpha=self.lora_alpha)
        return config


def _checked_alpha(value: Any) -> float | None:
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    raise ValueError(f"`lora_alpha` must be a number. Received: lora_alpha={value!r}")

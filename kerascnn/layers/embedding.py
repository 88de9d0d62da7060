"""A learned vector for each integer."""

from __future__ import annotations

import warnings
from typing import Any

from kerascnn import _core, constraints, initializers, ops, quantizers, regularizers
from kerascnn.layers.integer_weights import IntegerWeights
from kerascnn.ops import shaping


class Embedding(IntegerWeights):
    """A learned vector for each integer.

    Args:
        input_dim: How many integers there are, from 0 on.
        output_dim: Size of their vectors.
        embeddings_initializer: First values of the vectors.
        embeddings_regularizer: A penalty on them.
        embeddings_constraint: A callable that they go through after each update.
        mask_zero: Whether 0 stands for no integer at all: the output's mask is false there.
        weights: The vectors as an array (input_dim, output_dim), in place of first values.
        lora_rank: Rank of an adaptation that is trained in the vectors' place, None for none; see
            `enable_lora`.
        lora_alpha: The adaptation is scaled by lora_alpha / lora_rank; by default `lora_rank`.
        quantization_config: How the layer becomes int8 where `dtype` asks for that, such as
            "int8_from_float32": a `keras.quantizers.Int8QuantizationConfig`. See `quantize`.

    Input: integers from 0 to input_dim - 1, of any shape; floats are cut to integers. In compiled
    steps a number out of range counts as the nearest one in it.

    Output: (..., output_dim)

    Raises:
        ValueError: for sizes or a rank that are no positive integers, and a `quantization_config`
            that is none.
        IndexError: for a number out of range, outside of compiled steps.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> keras.layers.Embedding(1000, 64)(np.zeros((32, 10), "int32")).shape
    (32, 10, 64)
    """

    _adapted = "embeddings"

    _is_quantizable = True
    _embeddings: Any
    embeddings_scale: Any
    lora_embeddings_a: Any

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        weights: Any = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        quantization_config: Any = None,
        **kwargs: Any,
    ) -> None:
        for name, value in (("input_dim", input_dim), ("output_dim", output_dim)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
        if kwargs.pop("input_length", None) is not None:
            warnings.warn("`input_length` has no effect.", stacklevel=2)
        super().__init__(**kwargs)
        self._init_quantization(quantization_config)
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.embeddings_initializer = initializers.get(embeddings_initializer)
        self.embeddings_regularizer = regularizers.get(embeddings_regularizer)
        self.embeddings_constraint = constraints.get(embeddings_constraint)
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero
        self.autocast = False
        self._init_adaptation(lora_rank, lora_alpha)
        if weights is not None:
            self.build()
            single = isinstance(weights, list) and len(weights) == 1
            self.set_weights(weights if single else [weights])

    def build(self, input_shape: Any = None) -> None:
        if hasattr(self, "_embeddings"):
            return
        self._build_weight((self.input_dim, self.output_dim), self.embeddings_initializer)
        self._adapt_as_asked()

    @property
    def embeddings(self) -> Any:
        """The vectors, (input_dim, output_dim); with `enable_lora`, the adapted ones."""
        return self._adapted_value()

    def call(self, inputs: Any) -> Any:
        if inputs.dtype not in ("int32", "int64"):
            inputs = ops.cast(inputs, "int32")
        return ops.cast(_rows(self.embeddings, inputs), self.compute_dtype)

    def _int8_call(self, inputs: Any) -> Any:
        if inputs.dtype not in ("int32", "int64"):
            inputs = ops.cast(inputs, "int32")
        vectors = ops.cast(_rows(self._embeddings, inputs), self.compute_dtype)
        scale = _rows(self.embeddings_scale, inputs)
        vectors = ops.cast(ops.divide(vectors, ops.expand_dims(scale, -1)), self.compute_dtype)
        if not self.lora_enabled:
            return vectors
        return self._with_adaptation(vectors, _rows(self.lora_embeddings_a, inputs))

    def _summed_axes(self) -> tuple[int, ...]:
        return (1,)  # vectors are shorter than the table, so scales along them lose less

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return ops.not_equal(inputs, 0) if self.mask_zero else None

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*input_shape, self.output_dim)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": initializers.serialize(self.embeddings_initializer),
            "embeddings_regularizer": regularizers.serialize(self.embeddings_regularizer),
            "activity_regularizer": regularizers.serialize(self.activity_regularizer),
            "embeddings_constraint": constraints.serialize(self.embeddings_constraint),
            "mask_zero": self.mask_zero,
            "quantization_config": quantizers.serialize(self.quantization_config),
        }


def _rows(table: Any, places: Any) -> Any:
    """The rows at some places, none of which counts from the end; in a step the nearest ones."""
    if isinstance(places, _core.Value):
        return shaping.gather(table, places, 0)
    if isinstance(places, _core.Tensor):
        places = places.numpy()  # once: `take` looks at them too
        if places.size and (lowest := places.min()) < 0:
            raise IndexError(
                f"Embedding: expected numbers from 0 to {table.shape[0] - 1}. Received: {lowest}"
            )
    return ops.take(table, places, axis=0)

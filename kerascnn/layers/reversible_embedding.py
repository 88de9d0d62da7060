"""Vectors for integers, and scores of integers for vectors."""

from __future__ import annotations

from typing import Any

from kerascnn import masks, ops
from kerascnn.layers.embedding import Embedding
from kerascnn.layers.integer_weights import IntegerPart
from kerascnn.ops.matrix_products import matrix_product
from kerascnn.symbolic import inference


class ReversibleEmbedding(Embedding):
    """As `Embedding`; called with `reverse=True`, it gives each number's score for a vector.

    Args:
        input_dim: How many integers there are, from 0 on.
        output_dim: Size of their vectors.
        tie_weights: Whether scores are products with the vectors themselves, rather than with a
            weight (output_dim, input_dim) of their own.
        embeddings_initializer: First values of the weights.
        embeddings_regularizer: A penalty on the vectors.
        embeddings_constraint: A callable that the vectors go through after each update.
        mask_zero: Only False: masks are not available.
        reverse_dtype: What scores are computed in, by default what they come out in.
        logit_soft_cap: Scores are kept below this by `cap * tanh(scores / cap)`; None for no cap.
        **kwargs: Those of `Embedding`.

    Input: integers of any shape; with `reverse=True` vectors (..., output_dim).

    Output: (..., output_dim); with `reverse=True` scores (..., input_dim).

    Source: Press and Wolf, "Using the Output Embedding to Improve Language Models", 2016.

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> layer = keras.layers.ReversibleEmbedding(100, 8)
    >>> vectors = layer(np.zeros((2, 5), "int32"))
    >>> layer(vectors, reverse=True).shape
    (2, 5, 100)
    """

    _is_quantizable = True
    reverse_embeddings_scale: Any

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        tie_weights: bool = True,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        reverse_dtype: Any = None,
        logit_soft_cap: float | None = None,
        **kwargs: Any,
    ) -> None:
        # this comes first, since `weights` among the arguments builds the layer at once
        self.tie_weights = tie_weights
        super().__init__(
            input_dim,
            output_dim,
            embeddings_initializer=embeddings_initializer,
            embeddings_regularizer=embeddings_regularizer,
            embeddings_constraint=embeddings_constraint,
            mask_zero=mask_zero,
            **kwargs,
        )
        self.reverse_dtype = reverse_dtype
        self.logit_soft_cap = logit_soft_cap

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        if self.quantization_mode is not None:
            return  # both weights are made together
        if not self.tie_weights and not hasattr(self, "reverse_embeddings"):
            self.reverse_embeddings = self.add_weight(
                name="reverse_embeddings",
                shape=(self.output_dim, self.input_dim),
                initializer=self.embeddings_initializer,
            )

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        if not reverse:
            vectors = super().call(inputs)
            masks.set_mask(vectors, super().compute_mask(inputs))
            return vectors
        kernel = ops.transpose(self.embeddings) if self.tie_weights else self.reverse_embeddings
        if self.reverse_dtype is not None:
            inputs = ops.cast(inputs, self.reverse_dtype)
            kernel = ops.cast(kernel, self.reverse_dtype)
        return self._capped(ops.matmul(inputs, kernel))

    def _int8_call(self, inputs: Any, reverse: bool = False) -> Any:
        if not reverse:
            vectors = super()._int8_call(inputs)
            masks.set_mask(vectors, super().compute_mask(inputs))
            return vectors
        tied = self.tie_weights
        kernel = (self._embeddings if tied else self.reverse_embeddings).value
        scale = (self.embeddings_scale if tied else self.reverse_embeddings_scale).value
        if self.inputs_quantizer is None:
            inputs, kernel = (ops.cast(x, self.compute_dtype) for x in (inputs, kernel))
        else:
            # The stored weight is rounded to integers. Rounding to 16 bits before would move some
            # values by a whole step.
            inputs, inputs_scale = self.inputs_quantizer(inputs)
            scale = ops.multiply(inputs_scale, scale)
        rows = ops.reshape(inputs, (-1, self.output_dim))
        sums = ops.reshape(
            matrix_product(rows, kernel, turned_b=tied), (*inputs.shape[:-1], self.input_dim)
        )
        return self._capped(ops.divide(ops.cast(sums, self.compute_dtype), scale))

    def _parts(self, shape: tuple[int, ...]) -> list[IntegerPart]:
        parts = super()._parts(shape)
        if not self.tie_weights:
            name = "reverse_embeddings"
            parts.append(IntegerPart(name, name, (self.output_dim, self.input_dim), (0,)))
        return parts

    def _capped(self, scores: Any) -> Any:
        if self.logit_soft_cap is None:
            return scores
        capped = ops.tanh(ops.divide(scores, self.logit_soft_cap))
        return ops.multiply(capped, self.logit_soft_cap)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return None  # `call` sets the mask, since it depends on the direction

    def compute_output_shape(self, input_shape: Any, reverse: bool = False) -> Any:
        if reverse:
            return (*input_shape[:-1], self.input_dim)
        return super().compute_output_shape(input_shape)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return inference.infer(self.call, args, kwargs)  # this handles both directions

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "tie_weights": self.tie_weights,
            "reverse_dtype": self.reverse_dtype,
            "logit_soft_cap": self.logit_soft_cap,
        }

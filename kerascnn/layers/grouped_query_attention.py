"""Attention whose heads share keys and values in groups."""

from __future__ import annotations

import math
from typing import Any

from kerascnn import constraints, initializers, masks, ops, regularizers
from kerascnn.layers.activation import Softmax
from kerascnn.layers.arguments import positive_integer
from kerascnn.layers.attention_masks import combined_mask
from kerascnn.layers.attention_projection import (
    check_lengths,
    make_projection,
    policy_in_config,
)
from kerascnn.layers.dropout import Dropout
from kerascnn.layers.einsum_dense import EinsumDense
from kerascnn.layers.layer import Layer
from kerascnn.ops.products import masked_logits


class GroupedQueryAttention(Layer):
    """As `MultiHeadAttention`, with fewer heads of keys and values than of queries.

    Keras calls it `layers.GroupQueryAttention`.

    Args:
        head_dim: Size of each head's queries, keys and values.
        num_query_heads: Number of heads.
        num_key_value_heads: Number of groups of heads, each of which shares keys and values;
            divides `num_query_heads`.
        dropout: Share of the attention scores that is dropped in training.
        use_bias: Whether the projections have biases.
        sliding_window: Each query sees only keys that are less far away than this.
        flash_attention: Only None and False.
        kernel_initializer: First values of the projections' kernels.
        bias_initializer: First values of their biases.
        kernel_regularizer: A penalty on the kernels.
        bias_regularizer: A penalty on the biases.
        activity_regularizer: A penalty on the output and on what the projections give.
        kernel_constraint: A callable that the kernels go through after each update.
        bias_constraint: A callable that the biases go through after each update.
        use_gate: Whether what the heads give is multiplied by a sigmoid of a projected query.
        seed: Of the dropout.

    Input: `query` (n, t, d), `value` (n, s, d), and `key` (n, s, e), by default the value; masks
    and `return_attention_scores` by keyword, as of `MultiHeadAttention`.

    Output: (n, t, d) with the query's mask, and with `return_attention_scores` the shares
    (n, num_query_heads, t, s).

    Raises:
        ValueError: for sizes that are no positive integers, heads that do not divide into the
            groups, and inputs of shapes that do not fit.

    Source: Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models from
    Multi-Head Checkpoints", 2023.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.GroupQueryAttention(8, num_query_heads=4, num_key_value_heads=2)
    >>> layer(keras.ops.ones((2, 10, 16)), keras.ops.ones((2, 6, 16))).shape
    (2, 10, 16)
    """

    _supports_masking = True

    _name_in_configs = "GroupQueryAttention"  # other names come from the class

    def __init__(
        self,
        head_dim: int,
        num_query_heads: int,
        num_key_value_heads: int,
        dropout: float = 0.0,
        use_bias: bool = True,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        use_gate: bool = False,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self.head_dim = positive_integer(head_dim, "head_dim")
        self.num_query_heads = positive_integer(num_query_heads, "num_query_heads")
        self.num_key_value_heads = positive_integer(num_key_value_heads, "num_key_value_heads")
        if self.num_query_heads % self.num_key_value_heads:
            raise ValueError(
                "`num_query_heads` must be a multiple of `num_key_value_heads`. Received: "
                f"num_query_heads={num_query_heads}, num_key_value_heads={num_key_value_heads}"
            )
        if flash_attention:
            raise ValueError(
                "GroupQueryAttention: flash_attention=True is not available. Leave it out: "
                "device, dtype and shapes decide which kernel runs, with the same results."
            )
        if sliding_window is not None:
            sliding_window = positive_integer(sliding_window, "sliding_window")
        self.num_repeats = self.num_query_heads // self.num_key_value_heads
        self.dropout = dropout
        self.use_bias = use_bias
        self.use_gate = use_gate
        self.sliding_window = sliding_window
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self.seed = seed

    def build(  # type: ignore[override]
        self, query_shape: Any, value_shape: Any, key_shape: Any = None
    ) -> None:
        key_shape = value_shape if key_shape is None else key_shape
        self.compute_output_shape(query_shape, value_shape, key_shape)
        queries = [self.num_query_heads, self.head_dim]
        groups = [self.num_key_value_heads, self.head_dim]
        self._query_dense = self._projection("query", query_shape, queries)
        self._key_dense = self._projection("key", key_shape, groups)
        if self.use_gate:
            self._gate_dense = self._projection("gate", query_shape, queries, activation="sigmoid")
        self._value_dense = self._projection("value", value_shape, groups)
        self._softmax = Softmax(dtype=self._dtype_policy)
        self._dropout_layer = Dropout(self.dropout, dtype=self._dtype_policy, seed=self.seed)
        self._output_dense = self._projection(
            "attention_output", (None, None, *queries), [query_shape[-1]], summed=2
        )

    def _projection(
        self, name: str, shape: Any, sizes: list[int], summed: int = 1, **kwargs: Any
    ) -> EinsumDense:
        return make_projection(
            name,
            shape,
            sizes,
            self.use_bias,
            summed,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            activity_regularizer=self.activity_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            dtype=self._dtype_policy,
            **kwargs,
        )

    def call(
        self,
        query: Any,
        value: Any,
        key: Any = None,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
    ) -> Any:
        key = value if key is None else key
        given = (query_mask, value_mask, key_mask, attention_mask)
        mask = combined_mask(query, value, *given, use_causal_mask, self.sliding_window)
        with masks.taken_off(query, value, key):
            gate = self._gate_dense(query) if self.use_gate else None
            queries, keys = self._query_dense(query), self._key_dense(key)
            values = self._value_dense(value)
        queries = ops.multiply(queries, 1.0 / math.sqrt(self.head_dim))
        keys = ops.repeat(keys, self.num_repeats, axis=2)
        values = ops.repeat(values, self.num_repeats, axis=2)
        scores = ops.einsum("aecd,abcd->aceb", queries, keys)
        if mask is not None and len(mask.shape) == 3:
            mask = ops.expand_dims(mask, 1)  # all heads have the same mask
        if mask is None or self.dropout > 0 or return_attention_scores:
            scores = self._softmax(scores, mask=mask)
        else:  # as in Keras, a query that sees no key takes equal shares of all values
            scores = ops.softmax(masked_logits(scores, mask), axis=-1)
        shares = self._dropout_layer(scores, training=training) if self.dropout > 0 else scores
        outputs = ops.einsum("acbe,aecd->abcd", shares, values)
        if gate is not None:
            outputs = ops.multiply(outputs, gate)
        outputs = self._output_dense(outputs)
        return (outputs, scores) if return_attention_scores else outputs

    def compute_output_shape(
        self, query_shape: Any, value_shape: Any, key_shape: Any = None
    ) -> Any:
        key_shape = value_shape if key_shape is None else key_shape
        if query_shape[-1] != value_shape[-1]:
            raise ValueError(
                f"Layer '{self.name}': query and value must have the same last size. Received: "
                f"query_shape={tuple(query_shape)}, value_shape={tuple(value_shape)}"
            )
        check_lengths(self.name, value_shape, key_shape)
        return tuple(query_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **policy_in_config(self),
            "head_dim": self.head_dim,
            "num_query_heads": self.num_query_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "use_bias": self.use_bias,
            "use_gate": self.use_gate,
            "sliding_window": self.sliding_window,
            "dropout": self.dropout,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "kernel_regularizer": regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": regularizers.serialize(self.bias_regularizer),
            "activity_regularizer": regularizers.serialize(self.activity_regularizer),
            "kernel_constraint": constraints.serialize(self.kernel_constraint),
            "bias_constraint": constraints.serialize(self.bias_constraint),
            "seed": self.seed,
        }

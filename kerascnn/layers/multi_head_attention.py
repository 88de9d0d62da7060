"""Attention of several heads."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

from kerascnn import constraints, initializers, masks, ops, regularizers
from kerascnn.layers.activation import Softmax
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


class MultiHeadAttention(Layer):
    """Mixes, for each query, the values whose keys it resembles.

    Query, key and value are projected for each head; softmax(query . key / sqrt(key_dim)) are the
    shares of the values; what the heads give is projected back.

    Args:
        num_heads: Number of heads.
        key_dim: Size of each head's queries and keys.
        value_dim: Size of each head's values, by default `key_dim`.
        dropout: Share of the attention scores that is dropped in training.
        use_bias: Whether the projections have biases.
        output_shape: Sizes of what comes out after those of the sequence, by default those of the
            query.
        attention_axes: The axes that attention goes over, by default all between the batch and
            the features.
        sliding_window: Each query sees only keys that are less far away than this.
        flash_attention: Only None and False.
        kernel_initializer: First values of the projections' kernels.
        bias_initializer: First values of their biases.
        kernel_regularizer: A penalty on the kernels.
        bias_regularizer: A penalty on the biases.
        activity_regularizer: A penalty on what the projections give.
        kernel_constraint: A callable that the kernels go through after each update.
        bias_constraint: A callable that the biases go through after each update.
        use_gate: Whether what the heads give is multiplied by a sigmoid of a projected query.
        seed: Of the dropout.

    Input: `query` (n, t, d), `value` (n, s, e), and `key` (n, s, f), by default the value; with
    more axes between the batch and the features as `attention_axes` says. By keyword an
    `attention_mask` (n, t, s), true where a query may see a key; `query_mask` (n, t), `value_mask`
    and `key_mask` (n, s), true for what counts, by default the masks of the three, which, as in
    Keras, they don't have any more after the call; `use_causal_mask=True` hides what comes later;
    `return_attention_scores=True` asks for the shares too.

    Output: (n, t, d) with the query's mask, and with `return_attention_scores` the shares
    (n, heads, t, s).

    Raises:
        ValueError: for sizes that are no positive integers, and for keys and values of different
            length.

    Source: Vaswani et al., "Attention is All You Need", 2017.

    Example:

    >>> import kerascnn as keras
    >>> layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=8)
    >>> layer(keras.ops.ones((4, 10, 16)), keras.ops.ones((4, 6, 16))).shape
    (4, 10, 16)
    """

    _supports_masking = True

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | Sequence[int] | None = None,
        attention_axes: int | Sequence[int] | None = None,
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
        sizes = {"num_heads": num_heads, "key_dim": key_dim}
        optional = {"value_dim": value_dim, "sliding_window": sliding_window}
        for name, value in {**sizes, **optional}.items():
            if name in optional and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
        if flash_attention:
            raise ValueError(
                "MultiHeadAttention: flash_attention=True is not available. Leave it out: "
                "device, dtype and shapes decide which kernel runs, with the same results."
            )
        if attention_axes and not isinstance(attention_axes, (int, list, tuple)):
            raise ValueError(
                "`attention_axes` must be an integer or a list of them. Received: "
                f"attention_axes={attention_axes!r}"
            )
        if output_shape and not isinstance(output_shape, (int, list, tuple)):
            raise ValueError(
                "`output_shape` must be an integer or a list of them. Received: "
                f"output_shape={output_shape!r}"
            )
        super().__init__(**kwargs)
        self._num_heads = num_heads
        self._key_dim = key_dim
        self._inverse_sqrt_key_dim = 1.0 / math.sqrt(key_dim)
        self._value_dim = value_dim or key_dim
        self._dropout = dropout
        self._use_bias = use_bias
        self._use_gate = use_gate
        self._output_shape: Any = output_shape
        if output_shape:
            single = isinstance(output_shape, int)
            self._output_shape = (output_shape,) if single else tuple(output_shape)  # type: ignore[arg-type]
        self._kernel_initializer = initializers.get(kernel_initializer)
        self._bias_initializer = initializers.get(bias_initializer)
        self._kernel_regularizer = regularizers.get(kernel_regularizer)
        self._bias_regularizer = regularizers.get(bias_regularizer)
        self._activity_regularizer = regularizers.get(activity_regularizer)
        self._kernel_constraint = constraints.get(kernel_constraint)
        self._bias_constraint = constraints.get(bias_constraint)
        single = isinstance(attention_axes, int)
        self._attention_axes: Any = (attention_axes,) if single else attention_axes
        self._sliding_window = sliding_window
        self.seed = seed

    @property
    def num_heads(self) -> int:
        """How many heads there are."""
        return self._num_heads

    @property
    def key_dim(self) -> int:
        """Size of each head for queries and keys."""
        return self._key_dim

    @property
    def value_dim(self) -> int:
        """Size of each head for values."""
        return self._value_dim

    @property
    def dropout(self) -> float:
        """Share of the attention scores that is dropped in training."""
        return self._dropout

    @property
    def use_bias(self) -> bool:
        """Whether the projections have biases."""
        return self._use_bias

    @property
    def attention_axes(self) -> Any:
        """The axes over which it attends; None before it is built, if not given."""
        return self._attention_axes

    @property
    def query_dense(self) -> EinsumDense:
        """The layer that projects the query."""
        return self._query_dense

    @property
    def key_dense(self) -> EinsumDense:
        """The layer that projects the key."""
        return self._key_dense

    @property
    def value_dense(self) -> EinsumDense:
        """The layer that projects the value."""
        return self._value_dense

    @property
    def output_dense(self) -> EinsumDense:
        """The layer that projects the results of the heads."""
        return self._output_dense

    def build(  # type: ignore[override]
        self, query_shape: Any, value_shape: Any, key_shape: Any = None
    ) -> None:
        key_shape = value_shape if key_shape is None else key_shape
        check_lengths(self.name, value_shape, key_shape)
        heads = self._num_heads
        self._query_dense = self._projection("query", query_shape, [heads, self._key_dim])
        self._key_dense = self._projection("key", key_shape, [heads, self._key_dim])
        if self._use_gate:
            sizes = [heads, self._value_dim]
            self._gate_dense = self._projection("gate", query_shape, sizes, activation="sigmoid")
        self._value_dense = self._projection("value", value_shape, [heads, self._value_dim])
        self._build_attention(len(value_shape) + 1)
        given = (*query_shape[:-1], heads, self._value_dim)
        sizes = list(self._output_shape or [query_shape[-1]])
        self._output_dense = self._projection("attention_output", given, sizes, summed=2)

    def _projection(
        self, name: str, shape: Any, sizes: list[int], summed: int = 1, **kwargs: Any
    ) -> EinsumDense:
        return make_projection(
            name,
            shape,
            sizes,
            self._use_bias,
            summed,
            kernel_initializer=self._kernel_initializer,
            bias_initializer=self._bias_initializer,
            kernel_regularizer=self._kernel_regularizer,
            bias_regularizer=self._bias_regularizer,
            activity_regularizer=self._activity_regularizer,
            kernel_constraint=self._kernel_constraint,
            bias_constraint=self._bias_constraint,
            dtype=self._dtype_policy,
            **kwargs,
        )

    def _build_attention(self, rank: int) -> None:
        """Prepares the two products for projected tensors (n, ..., heads, features) of a rank."""
        if self._attention_axes is None:
            self._attention_axes = tuple(range(1, rank - 2))
        else:
            axes = self._attention_axes
            self._attention_axes = tuple(a if a >= 0 else rank - 1 + a for a in axes)
        axes = self._attention_axes
        query = string.ascii_lowercase[:rank]
        further = iter(string.ascii_lowercase[rank:])
        key = "".join(next(further) if i in axes else c for i, c in enumerate(query))
        batch = "".join(c for i, c in enumerate(query[:-1]) if i not in axes)
        scores = batch + "".join(query[i] for i in axes) + "".join(key[i] for i in axes)
        self._scores_equation = f"{query},{key}->{scores}"
        # Keras has the key first; a `_compute_attention` of one's own relies on that.
        self._dot_product_equation = f"{key},{query}->{scores}"
        self._combine_equation = f"{scores},{key}->{query}"
        last = tuple(range(len(scores) - len(axes), len(scores)))
        self._softmax = Softmax(axis=last, dtype=self._dtype_policy)
        self._dropout_layer = Dropout(self._dropout, dtype=self._dtype_policy, seed=self.seed)

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
        for x in (query, value, key):
            masks.set_mask(x, None)
        given = (query_mask, value_mask, key_mask, attention_mask)
        mask = combined_mask(query, value, *given, use_causal_mask, self._sliding_window)
        gate = self._gate_dense(query) if self._use_gate else None
        query, key, value = (
            self._query_dense(query),
            self._key_dense(key),
            self._value_dense(value),
        )
        outputs, scores = self._compute_attention(
            query, key, value, mask, training, return_attention_scores
        )
        if gate is not None:
            outputs = ops.multiply(outputs, gate)
        outputs = self._output_dense(outputs)
        return (outputs, scores) if return_attention_scores else outputs

    def _compute_attention(
        self,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any = None,
        training: Any = None,
        return_attention_scores: bool = False,
    ) -> tuple[Any, Any]:
        """Attention of projected tensors; subclasses may compute it in another way, as in Keras.

        For them there are `ops.einsum(self._dot_product_equation, key, query)`,
        `self._masked_softmax`, `self._dropout_layer`, `self._inverse_sqrt_key_dim` and
        `ops.einsum(self._combine_equation, shares, value)`.

        Args:
            query: Tensor of shape (n, T, heads, features); T may be several axes.
            key: Tensor of shape (n, S, heads, features).
            value: Tensor of shape (n, S, heads, features of values).
            attention_mask: Booleans of shape (n, T, S), True where a query sees a key; None for
                everywhere.
            training: Whether shares are dropped.
            return_attention_scores: Whether the second result is asked for.

        Returns:
            Tensor of shape (n, T, heads, features of values), and the shares of all keys.
        """
        rank = len(query.shape)
        query = ops.multiply(query, self._inverse_sqrt_key_dim)
        scores = ops.einsum(self._scores_equation, query, key)
        if attention_mask is None or self._dropout > 0 or return_attention_scores or rank != 4:
            scores = self._masked_softmax(scores, attention_mask)
        else:
            # Keras does the same when nobody asks for the scores: a query that sees no key takes
            # equal shares of all values.
            mask = self._mask_of_heads(scores, attention_mask)
            scores = ops.softmax(masked_logits(scores, mask), axis=-1)
        shares = scores
        if self._dropout > 0:
            shares = self._dropout_layer(scores, training=training)
        return ops.einsum(self._combine_equation, shares, value), scores

    def _masked_softmax(self, attention_scores: Any, attention_mask: Any = None) -> Any:
        """The shares of all keys, of scores of shape (n, heads, T, S) and a mask of (n, T, S)."""
        mask = attention_mask
        if mask is not None:
            mask = self._mask_of_heads(attention_scores, mask)
        return self._softmax(attention_scores, mask=mask)

    def _mask_of_heads(self, scores: Any, mask: Any) -> Any:
        """A mask with an axis of one head, or of more axes, where scores have more than it."""
        missing = len(scores.shape) - len(mask.shape)
        before = len(mask.shape) - 2 * len(self._attention_axes)
        return ops.expand_dims(mask, tuple(range(before, before + missing)))

    def compute_output_shape(
        self, query_shape: Any, value_shape: Any, key_shape: Any = None
    ) -> Any:
        check_lengths(self.name, value_shape, value_shape if key_shape is None else key_shape)
        sizes = self._output_shape or (query_shape[-1],)
        return (*query_shape[:-1], *sizes)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **policy_in_config(self),
            "num_heads": self._num_heads,
            "key_dim": self._key_dim,
            "value_dim": self._value_dim,
            "dropout": self._dropout,
            "use_bias": self._use_bias,
            "use_gate": self._use_gate,
            "output_shape": self._output_shape,
            "attention_axes": self._attention_axes,
            "sliding_window": self._sliding_window,
            "kernel_initializer": initializers.serialize(self._kernel_initializer),
            "bias_initializer": initializers.serialize(self._bias_initializer),
            "kernel_regularizer": regularizers.serialize(self._kernel_regularizer),
            "bias_regularizer": regularizers.serialize(self._bias_regularizer),
            "activity_regularizer": regularizers.serialize(self._activity_regularizer),
            "kernel_constraint": constraints.serialize(self._kernel_constraint),
            "bias_constraint": constraints.serialize(self._bias_constraint),
            "seed": self.seed if isinstance(self.seed, int) else None,
        }

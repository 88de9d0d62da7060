"""Attention without projections: dot products, or sums through tanh."""

from __future__ import annotations

from typing import Any

from kerascnn import ops, random
from kerascnn.layers.arguments import make_generator
from kerascnn.layers.attention_masks import positions_mask
from kerascnn.layers.layer import Layer
from kerascnn.symbolic import inference


class Attention(Layer):
    """Mixes, for each query, the values whose keys it resembles.

    softmax(scores) are the shares of the values; a score is query . key, or with "concat" the sum
    of tanh(query + key).

    Args:
        use_scale: Whether a learned number multiplies the scores ("dot") or query + key ("concat").
        score_mode: "dot" or "concat".
        dropout: Share of the attention scores that is dropped in training.
        seed: Of the dropout.

    Input: a list of query (n, t, d), value (n, s, e), and key (n, s, d), by default the value. By
    keyword `mask`, a list of query mask (n, t) and value mask (n, s), true for what counts, or
    None, by default those of the inputs; `use_causal_mask=True` hides what comes later;
    `return_attention_scores=True` asks for the shares too.

    Output: (n, t, e), with the query's mask, 0 where that is false; and with
    `return_attention_scores` the shares (n, t, s).

    Raises:
        ValueError: for another `score_mode`, and inputs that are no list of two or three.

    Source: Luong et al., "Effective Approaches to Attention-based Neural Machine Translation",
    2015.

    Example:

    >>> import kerascnn as keras
    >>> query, value = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4))
    >>> keras.layers.Attention()([query, value]).shape
    (2, 3, 4)
    """

    def __init__(
        self,
        use_scale: bool = False,
        score_mode: str = "dot",
        dropout: float = 0.0,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if score_mode not in ("dot", "concat"):
            raise ValueError(
                f"`score_mode` must be 'dot' or 'concat'. Received: score_mode={score_mode!r}"
            )
        self.use_scale = use_scale
        self.score_mode = score_mode
        self.dropout = dropout
        self.seed = seed
        self.seed_generator = make_generator(seed) if dropout > 0 else None

    def build(self, input_shape: Any) -> None:
        self._check_inputs(input_shape)
        self.scale = None
        self.concat_score_weight = None
        if self.use_scale:
            self.scale = self.add_weight(name="scale", shape=(), initializer="ones")
        if self.score_mode == "concat":
            self.concat_score_weight = self.add_weight(
                name="concat_score_weight", shape=(), initializer="ones"
            )

    def _check_inputs(self, inputs: Any) -> None:
        if not isinstance(inputs, list) or len(inputs) not in (2, 3):
            raise ValueError(
                f"Layer '{self.name}' takes a list [query, value] or [query, value, key]. "
                f"Received: {type(inputs).__name__}"
                + (f" of {len(inputs)}" if isinstance(inputs, (list, tuple)) else "")
            )

    def _check_mask(self, mask: Any) -> None:
        if mask is not None and (not isinstance(mask, list) or len(mask) not in (2, 3)):
            raise ValueError(
                f"Layer '{self.name}': `mask` must be a list [query_mask, value_mask], with None "
                f"for no mask. Received: {type(mask).__name__}"
            )

    def _calculate_scores(self, query: Any, key: Any) -> Any:
        """Returns the scores (n, t, s) of a query (n, t, d) and a key (n, s, d)."""
        if self.score_mode == "dot":
            scores = ops.matmul(query, ops.swapaxes(key, -2, -1))
            return scores if self.scale is None else ops.multiply(scores, self.scale)
        sums = _all_sums(query, key)
        if self.scale is not None:
            sums = ops.multiply(sums, self.scale)
        return ops.multiply(ops.sum(ops.tanh(sums), axis=-1), self.concat_score_weight)

    def _apply_scores(
        self, scores: Any, value: Any, scores_mask: Any = None, training: bool = False
    ) -> tuple[Any, Any]:
        """Returns the mixed values (n, t, e) and the shares (n, t, s)."""
        if scores_mask is not None:
            # This is so low that the share becomes 0; 65504 is the largest float16.
            little = 65504.0 if scores.dtype == "float16" else 1e9
            scores = ops.where(scores_mask, scores, ops.subtract(scores, little))
        shares = ops.softmax(scores, axis=-1)
        if training and self.dropout > 0:
            shares = random.dropout(shares, self.dropout, None, self.seed_generator)
        return ops.matmul(shares, value), shares

    def _calculate_score_mask(self, scores: Any, v_mask: Any, use_causal_mask: bool) -> Any:
        queries, keys = scores.shape[-2:]
        mask = positions_mask(queries, keys, use_causal_mask)
        if v_mask is None:
            return mask
        v_mask = ops.expand_dims(ops.cast(v_mask, "bool"), -2)
        return v_mask if mask is None else ops.logical_and(v_mask, mask)

    def call(
        self,
        inputs: Any,
        mask: Any = None,
        training: bool = False,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:
        self._check_inputs(inputs)
        self._check_mask(mask)
        query, value = inputs[:2]
        key = inputs[2] if len(inputs) > 2 else value
        query_mask, value_mask = mask[:2] if mask else (None, None)
        scores = self._calculate_scores(query, key)
        scores_mask = self._calculate_score_mask(scores, value_mask, use_causal_mask)
        outputs, shares = self._apply_scores(scores, value, scores_mask, training)
        if query_mask is not None:
            counts = ops.expand_dims(ops.cast(query_mask, outputs.dtype), -1)
            outputs = ops.multiply(outputs, counts)
        return (outputs, shares) if return_attention_scores else outputs

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        self._check_mask(mask)
        if not mask or mask[0] is None:
            return None
        return ops.convert_to_tensor(mask[0])  # as Keras has it in configurations

    def compute_output_shape(self, input_shape: Any) -> Any:
        query_shape, value_shape = input_shape[:2]
        return (*query_shape[:-1], value_shape[-1])

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return inference.infer(self.call, args, kwargs)  # one result or two

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "use_scale": self.use_scale,
            "score_mode": self.score_mode,
            "dropout": self.dropout,
            "seed": self.seed,
        }


class AdditiveAttention(Attention):
    """As `Attention`, where a score is the sum of scale * tanh(query + key) over the features.

    Args:
        use_scale: Whether learned numbers multiply the features.
        dropout: Share of the attention scores that is dropped in training.
        **kwargs: `seed` of the dropout, and those of every layer.

    Input: as of `Attention`, query and key of the same last size.

    Output: (n, t, e), and with `return_attention_scores` the shares (n, t, s).

    Source: Bahdanau et al., "Neural Machine Translation by Jointly Learning to Align and
    Translate", 2014.

    Example:

    >>> import kerascnn as keras
    >>> query, value = keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 5, 4))
    >>> keras.layers.AdditiveAttention()([query, value]).shape
    (2, 3, 4)
    """

    def __init__(self, use_scale: bool = True, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(use_scale=use_scale, dropout=dropout, **kwargs)

    def build(self, input_shape: Any) -> None:
        self._check_inputs(input_shape)
        self.scale = None
        if self.use_scale:
            self.scale = self.add_weight(
                name="scale", shape=(input_shape[0][-1],), initializer="glorot_uniform"
            )

    def _calculate_scores(self, query: Any, key: Any) -> Any:
        terms = ops.tanh(_all_sums(query, key))
        return ops.sum(terms if self.scale is None else ops.multiply(terms, self.scale), axis=-1)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["score_mode"]
        return config


def _all_sums(query: Any, key: Any) -> Any:
    """Returns query + key for each pair of them, (n, t, s, d)."""
    return ops.add(ops.expand_dims(query, -2), ops.expand_dims(key, -3))

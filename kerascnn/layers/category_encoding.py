"""Class numbers as rows of 0 and 1, or as counts."""

from __future__ import annotations

from typing import Any

from kerascnn import ops
from kerascnn.layers.arguments import positive_integer
from kerascnn.layers.layer import Layer
from kerascnn.layers.preprocessing.encoding import encode, encoded_shape
from kerascnn.symbolic import inference

_MODES = ("count", "one_hot", "multi_hot")


class CategoryEncoding(Layer):
    """Turns numbers of classes into rows with a place for each class.

    Args:
        num_tokens: How many classes there are, from 0 on.
        output_mode: "one_hot" for a row with one 1 for each number, "multi_hot" for a row with a 1
            for each class that is among the numbers of a sample, "count" for how often it is.
        sparse: Only False: tensors are dense.

    Input: integers (n, k), as lists too, k of each sample; with "one_hot" of any shape. With
    "count" a keyword `count_weights`, of the same shape, says how much each number counts.

    Output: (n, num_tokens); with "one_hot" (..., num_tokens), where a last size of 1 goes away. A
    number out of range gives a row of 0.

    Raises:
        ValueError: for an unknown mode, no `num_tokens`, `sparse=True`, and `count_weights` beside
            another mode than "count".

    Example:

    >>> import kerascnn as keras
    >>> import numpy as np
    >>> layer = keras.layers.CategoryEncoding(num_tokens=4)
    >>> layer(np.array([[0, 1], [3, 3]])).numpy().tolist()
    [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """

    _takes_numbers = True

    def __init__(
        self,
        num_tokens: int | None = None,
        output_mode: str = "multi_hot",
        sparse: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        mode = "multi_hot" if output_mode == "binary" else output_mode  # Keras 2 called it "binary"
        if mode not in _MODES:
            raise ValueError(
                f"`output_mode` must be one of {_MODES}. Received: output_mode={output_mode!r}"
            )
        if sparse:
            raise ValueError("CategoryEncoding: sparse=True is not available, tensors are dense.")
        self.num_tokens = positive_integer(num_tokens, "num_tokens")
        self.output_mode = mode
        self.sparse = False

    def call(self, inputs: Any, count_weights: Any = None) -> Any:
        if count_weights is not None and self.output_mode != "count":
            raise ValueError(
                "`count_weights` are for output_mode='count'. Received: output_mode="
                f"{self.output_mode!r}"
            )
        if inputs.dtype not in ("int32", "int64"):
            inputs = ops.cast(inputs, "int32")
        return encode(inputs, self.output_mode, self.num_tokens, self.compute_dtype, count_weights)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return encoded_shape(tuple(input_shape), self.output_mode, self.num_tokens)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return inference.infer(self.call, args, kwargs)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_tokens": self.num_tokens,
            "output_mode": self.output_mode,
        }

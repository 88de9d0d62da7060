"""The layer for what ONNX has as weights and Keras has no layer for."""

from __future__ import annotations

from typing import Any

from kerascnn import ops
from kerascnn.layers.layer import Layer

_OPS = {
    "Add": ops.add,
    "Sub": ops.subtract,
    "Mul": ops.multiply,
    "Div": ops.divide,
    "Pow": ops.power,
    "Max": ops.maximum,
    "Min": ops.minimum,
}


class Elementwise(Layer):
    """An operation of arithmetic with a weight, which is broadcast against the input.

    `kerascnn.models.from_onnx` makes these.

    Args:
        op: "Add", "Sub", "Mul", "Div", "Pow", "Max" or "Min".
        shape: Of the weight.
        weight_first: Whether the weight is the left operand.
        **kwargs: As for every layer.
    """

    def __init__(self, op: str, shape: Any, weight_first: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if op not in _OPS:
            raise ValueError(f"`op` must be one of {', '.join(_OPS)}. Received: op={op!r}")
        self.op, self.shape, self.weight_first = op, tuple(shape), bool(weight_first)

    def build(self, input_shape: Any = None) -> None:
        self.weight = self.add_weight(name="weight", shape=self.shape, initializer="ones")

    def call(self, inputs: Any) -> Any:
        operands = (self.weight, inputs) if self.weight_first else (inputs, self.weight)
        return _OPS[self.op](*operands)

    def get_config(self) -> dict[str, Any]:
        own = {"op": self.op, "shape": list(self.shape), "weight_first": self.weight_first}
        return {**super().get_config(), **own}

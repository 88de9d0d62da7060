"""Layers with one kind of cell, which take the cell's arguments."""

from __future__ import annotations

from typing import Any

from kerascnn import regularizers
from kerascnn.layers.recurrent.rnn import RNN


def of_cell(name: str) -> Any:
    """Makes a property that reads the attribute of the cell."""

    def get(layer: Any) -> Any:
        return getattr(layer.cell, name)

    get.__doc__ = f"The cell's `{name}`."
    return property(get)


class CellLayer(RNN):
    """A recurrent layer whose configuration has the cell's arguments in place of the cell."""

    activation = of_cell("activation")
    use_bias = of_cell("use_bias")
    kernel_initializer = of_cell("kernel_initializer")
    recurrent_initializer = of_cell("recurrent_initializer")
    bias_initializer = of_cell("bias_initializer")
    kernel_regularizer = of_cell("kernel_regularizer")
    recurrent_regularizer = of_cell("recurrent_regularizer")
    bias_regularizer = of_cell("bias_regularizer")
    kernel_constraint = of_cell("kernel_constraint")
    recurrent_constraint = of_cell("recurrent_constraint")
    bias_constraint = of_cell("bias_constraint")
    dropout = of_cell("dropout")
    recurrent_dropout = of_cell("recurrent_dropout")

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["cell"]
        return {
            **config,
            **self.cell.arguments_config(),
            "activity_regularizer": regularizers.serialize(self.activity_regularizer),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Any:
        return cls(**config)


def checked_use_cudnn(value: Any) -> Any:
    """Checks for "auto", True or False; raises a ValueError for anything else."""
    if value not in ("auto", True, False):
        raise ValueError(
            f"`use_cudnn` must be 'auto', True or False. Received: use_cudnn={value!r}"
        )
    return value

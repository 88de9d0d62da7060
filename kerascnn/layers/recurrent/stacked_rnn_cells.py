"""Several cells that behave as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kerascnn import ops, serialization
from kerascnn.layers.call_arguments import call_parameters
from kerascnn.layers.layer import Layer


class StackedRNNCells(Layer):
    """Cells that are applied one after another within one time step, as one cell for `RNN`.

    Args:
        cells: A list of cells.

    Raises:
        ValueError: for a cell without `call` or `state_size`.

    Example:

    >>> import kerascnn as keras
    >>> cell = keras.layers.StackedRNNCells([keras.layers.LSTMCell(4) for _ in range(2)])
    >>> cell.state_size
    [[4, 4], [4, 4]]
    """

    def __init__(self, cells: Sequence[Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for cell in cells:
            check_cell(cell)
        self.cells = cells

    @property
    def state_size(self) -> list[Any]:
        """The `state_size` of each cell."""
        return [cell.state_size for cell in self.cells]

    @property
    def output_size(self) -> Any:
        """The `output_size` of the last cell."""
        return _output_size(self.cells[-1])

    def get_initial_state(self, batch_size: Any = None) -> list[Any]:
        """The initial states of the cells, one entry for each."""
        states = []
        for cell in self.cells:
            initial = getattr(cell, "get_initial_state", None)
            if initial is not None:
                states.append(initial(batch_size=batch_size))
                continue
            size, dtype = cell.state_size, self.compute_dtype
            if isinstance(size, int):
                states.append(ops.zeros((batch_size, size), dtype=dtype))
            else:
                states.append([ops.zeros((batch_size, part), dtype=dtype) for part in size])
        return states

    def call(self, inputs: Any, states: Any, training: Any = False, **kwargs: Any) -> Any:
        after = []
        for cell, state in zip(self.cells, states, strict=True):
            is_nested = isinstance(state, (list, tuple))
            own = dict(kwargs)
            if isinstance(cell, Layer) and "training" in call_parameters(type(cell).call):
                own["training"] = training
            inputs, new = apply_cell(cell, inputs, list(state) if is_nested else [state], **own)
            after.append(new[0] if len(new) == 1 and not is_nested else new)
        return inputs, (after[0] if len(after) == 1 else after)

    def build(self, input_shape: Any) -> None:
        for cell in self.cells:
            if isinstance(cell, Layer) and not cell.built:
                cell.build(input_shape)
                cell.built = True
            input_shape = (input_shape[0], _output_size(cell))

    def get_config(self) -> dict[str, Any]:
        cells = [serialization.serialize_object(cell) for cell in self.cells]
        return {**super().get_config(), "cells": cells}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Any:
        config = dict(config)
        cells = [
            serialization.deserialize_object(cell, custom_objects, "kerascnn.layers")
            for cell in config.pop("cells")
        ]
        return cls(cells, **config)


def check_cell(cell: Any) -> None:
    """Raises a ValueError for an object without `call` or `state_size`."""
    if not hasattr(cell, "call"):
        raise ValueError(f"A recurrent cell needs a `call` method. Received: cell={cell!r}")
    if "state_size" not in dir(cell):
        raise ValueError(
            "A recurrent cell needs the attribute `state_size`: an integer, or a list of integers, "
            f"one for each state. Received: cell={cell!r}"
        )


def apply_cell(cell: Any, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Returns the output of a cell, which need not be a layer, and its new states as a list."""
    call = cell if callable(cell) else cell.call
    output, after = call(inputs, states, **kwargs)
    return output, (list(after) if isinstance(after, (list, tuple)) else [after])


def _output_size(cell: Any) -> Any:
    size = getattr(cell, "output_size", None)
    if size is not None:
        return size
    return cell.state_size[0] if isinstance(cell.state_size, (list, tuple)) else cell.state_size

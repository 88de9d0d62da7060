"""Function: the calls between KerasTensors, as something that can be called on values."""

from __future__ import annotations

from typing import Any

from kerascnn import trees
from kerascnn.ops import dispatch
from kerascnn.symbolic.graph import OperationGraph
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.symbolic.operation import Operation


class Function(Operation):
    """What lies between KerasTensors, without weights of its own, training or files.

    Args:
        inputs: KerasTensors, nested in any way.
        outputs: KerasTensors that are computed from them.
        name: By default function, function_1, ...

    Raises:
        ValueError: where the outputs need a tensor that does not come from the inputs; when called,
            for another number of inputs, or shapes that don't fit.

    Example:

    >>> import kerascnn as keras
    >>> a, b = keras.Input((2,)), keras.Input((2,))
    >>> add = keras.Function([a, b], {"sum": a + b})
    >>> add([keras.ops.ones((1, 2)), keras.ops.ones((1, 2))])["sum"].numpy().tolist()
    [[2.0, 2.0]]
    """

    def __init__(self, inputs: Any, outputs: Any, name: str | None = None) -> None:
        super().__init__(name)
        self._graph = OperationGraph(inputs, outputs, self.name)

    @property
    def operations(self) -> list[Operation]:
        """Layers and functions, from the inputs to the outputs."""
        return list(self._graph.operations)

    @property
    def inputs(self) -> list[KerasTensor]:
        """The KerasTensors that values are given for, flat."""
        return list(self._graph.input_tensors)

    @property
    def outputs(self) -> list[KerasTensor]:
        """The KerasTensors that are computed, flat."""
        return list(self._graph.output_tensors)

    def call(self, inputs: Any) -> Any:
        """The outputs, nested as they were given, for values nested as the inputs."""
        values = [dispatch.convert(x) for x in trees.leaves(inputs)]
        if len(values) != len(self.inputs):
            raise ValueError(
                f"Function '{self.name}' takes {len(self.inputs)} inputs, received {len(values)}."
            )
        for tensor, value in zip(self.inputs, values, strict=True):
            sizes = zip(tensor.shape, value.shape, strict=False)
            if len(tensor.shape) != len(value.shape) or any(a not in (None, b) for a, b in sizes):
                raise ValueError(
                    f"Function '{self.name}' takes an input of shape {tensor.shape} for "
                    f"'{tensor.name}', received {tuple(value.shape)}."
                )
        return self._graph.compute(values)

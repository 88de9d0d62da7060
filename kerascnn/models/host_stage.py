"""What of a functional model runs on the host, before the compiled step.

Layers of text and of tables with text (`HostLayer`) take no tensors. Where they lie at the
beginning of a model, with nothing before them that learns, `fit` and its like compute them for
the data that comes in, on the CPU and with NumPy; the compiled step begins with their results.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kerascnn import trees
from kerascnn.device import device as on_device
from kerascnn.layers.layer import Layer
from kerascnn.layers.preprocessing.normalization import Normalization
from kerascnn.symbolic.graph import OperationGraph
from kerascnn.symbolic.operation import Node, node_of


class Staged(list[Any]):
    """Inputs of a model after its host stage, in the order of `HostStage.tensors`."""


class HostStage:
    """The part of a graph that runs on the host, and the graph of the rest.

    Args:
        graph: All calls of a model.
        name: Of the model, for errors.

    Attributes:
        tensors: The KerasTensors that the rest begins with.
        rest: The graph of the rest.
    """

    def __init__(self, graph: OperationGraph, name: str):
        self._graph = graph
        self._name = name
        self._nodes = _nodes_on_host(graph)
        done = {id(x) for x in graph.input_tensors}
        done.update(id(x) for node in self._nodes for x in node.output_tensors)
        inside = {id(node) for node in self._nodes}
        needed = [
            x
            for node in graph.nodes
            if id(node) not in inside and not node.is_input
            for x in node.input_tensors
        ]
        needed += graph.output_tensors
        self.tensors = list({id(x): x for x in needed if id(x) in done}.values())
        self.rest = OperationGraph(list(self.tensors), graph.outputs, name)
        text = next((x for x in self.tensors if x.dtype == "string"), None)
        self._text = None if text is None else node_of(text).operation.name

    def __call__(self, values: list[Any]) -> Staged:
        """The inputs of the rest, for values of the model's inputs.

        Raises:
            ValueError: where the rest would need text.
        """
        if self._text is not None:
            raise ValueError(
                f"Model '{self._name}': what comes out of '{self._text}' is text, which can't be "
                "an output of `predict` or go on to a layer of a compiled step. Call the model "
                "itself on the data: model(x)."
            )
        graph = self._graph
        known = {id(x): v for x, v in zip(graph.input_tensors, values, strict=True)}
        with on_device("cpu"):
            for node in self._nodes:
                args, kwargs = node.fill_in(known)
                results = trees.flatten(node.operation(*args, **kwargs))
                known.update(zip(map(id, node.output_tensors), results, strict=True))
        return Staged(np.asarray(known[id(x)]) for x in self.tensors)


def runs_on_host(operation: Any) -> bool:
    """Whether this is a layer that takes no tensors of a step, or a model with such a one."""
    if not isinstance(operation, Layer):
        return False
    return any(layer.runs_on_host for layer in operation._flatten_layers())


def _nodes_on_host(graph: OperationGraph) -> list[Node]:
    """The calls of layers that run on the host, and what they need, in the order of computing."""
    calls = [node for node in graph.nodes if not node.is_input]
    learns: set[int] = set()  # the outputs of calls that lie behind weights
    for node in calls:
        if _has_weights(node.operation) or any(id(x) in learns for x in node.input_tensors):
            learns.update(id(x) for x in node.output_tensors)
    wanted: set[int] = set()
    chosen = []
    for node in reversed(calls):
        outputs = [id(x) for x in node.output_tensors]
        if any(x in learns for x in outputs):
            continue
        if runs_on_host(node.operation) or any(x in wanted for x in outputs):
            wanted.update(id(x) for x in node.input_tensors)
            chosen.append(node)
    return chosen[::-1]


def _has_weights(operation: Any) -> bool:
    """Whether training may change what a layer computes, now or when it is not frozen any more."""
    if not isinstance(operation, Layer):
        return False
    return any(
        layer._weights_in_files() and not isinstance(layer, Normalization)
        for layer in operation._flatten_layers()
    )

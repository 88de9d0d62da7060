"""The parts of a functional model that run on the host, before and after the compiled step.

Layers of text and of tables with text (`HostLayer`) take no tensors. Where they lie at the
beginning of a model, with nothing before them that learns, `fit` and similar methods compute them
for the data that comes in, on the CPU and with NumPy; the compiled step begins with their results.
Where they lie behind layers that learn, or give text out of the model, `predict` compiles what is
before them, and calls them and all behind them at once on what came out.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from kerascnn import trees
from kerascnn.device import device as on_device
from kerascnn.layers.layer import Layer
from kerascnn.layers.preprocessing.normalization import Normalization
from kerascnn.symbolic.graph import OperationGraph
from kerascnn.symbolic.operation import Node, node_of


class Staged(list[Any]):
    """The inputs of a model after its host stage, in the order of `HostStage.tensors`."""


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


class HostEnd:
    """The calls of a functional model that `predict` does after the compiled step.

    Args:
        graph: All calls of the model.
        nodes: Those of the end.
        name: Of the model, for errors.

    Attributes:
        model: The model that ends where the host begins; it has the same layers.
    """

    def __init__(self, graph: OperationGraph, nodes: list[Node], name: str):
        from kerascnn.models.functional import Functional

        inside = {id(x) for node in nodes for x in node.output_tensors}
        taken = _taken(nodes, graph)
        middle = list({id(x): x for x in taken if id(x) not in inside}.values())
        self._after = OperationGraph(middle, graph.outputs, name)
        self.model = Functional(graph.inputs, middle, name=name)
        self.layer_name = nodes[0].operation.name

    def __call__(self, values: Any, as_tensor: bool) -> Any:
        """The outputs of the whole model: text as arrays of strings, numbers as arrays or tensors.

        Args:
            values: What came out of `model`: a list, or one by itself.
            as_tensor: Whether numbers stay tensors.
        """
        found = self._after.compute(values if isinstance(values, list) else [values])
        return trees.map_structure(lambda x: x if as_tensor else np.asarray(x), found)


def host_end(graph: OperationGraph, name: str) -> HostEnd | None:
    """Returns the part of a model that runs on the host after its compiled step, or None.

    It is None too where the end takes text that the model gets: a step cannot hand that on.
    """
    calls = [node for node in graph.nodes if not node.is_input]
    if not any(runs_on_host(node.operation) for node in calls):
        return None
    before = {id(node) for node in _nodes_on_host(graph)}
    # Text that the rest takes, or that is an output, is not a result of what is before a step.
    leaving = {id(x) for x in graph.output_tensors}
    for node in reversed(calls):
        if any(x.dtype == "string" and id(x) in leaving for x in node.output_tensors):
            before.discard(id(node))
        if id(node) not in before:
            leaving.update(id(x) for x in node.input_tensors)
    after: set[int] = set()
    nodes = []
    for node in calls:
        begins = runs_on_host(node.operation) and id(node) not in before
        if begins or any(id(x) in after for x in node.input_tensors):
            after.update(id(x) for x in node.output_tensors)
            nodes.append(node)
    if not nodes or any(x.dtype == "string" and id(x) not in after for x in _taken(nodes, graph)):
        return None
    return HostEnd(graph, nodes, name)


def _taken(nodes: list[Node], graph: OperationGraph) -> list[Any]:
    """Returns what the calls of an end take, and the outputs of the model."""
    return [x for node in nodes for x in node.input_tensors] + graph.output_tensors


def with_layers_inside(graph: OperationGraph, name: str) -> OperationGraph:
    """The same calls, with what layers do that take text in the place of these layers.

    So a lookup in the `call` of a user's layer runs on the host, and an embedding behind it
    in the compiled step. Layers with weights of their own, or with `training`, stay whole.
    """
    calls = [node for node in graph.nodes if not node.is_input]
    if not any(_is_composed(node.operation) for node in calls):
        return graph
    outputs = graph.run(
        graph.input_tensors,
        lambda operation: operation.call if _is_composed(operation) else operation,
    )
    return OperationGraph(graph.inputs, outputs, name)


def _is_composed(operation: Any) -> bool:
    from kerascnn.models.model import Model

    return (
        isinstance(operation, Layer)
        and not isinstance(operation, Model)
        and not operation.runs_on_host
        and not operation._weights_in_files()
        and "training" not in inspect.signature(operation.call).parameters
        and runs_on_host(operation)
    )


def runs_on_host(operation: Any) -> bool:
    """Tells whether this layer, or one inside this model, takes no tensors of a step."""
    if not isinstance(operation, Layer):
        return False
    return any(layer.runs_on_host for layer in operation._flatten_layers())


def _nodes_on_host(graph: OperationGraph) -> list[Node]:
    """Returns the calls of layers that run on the host and what they need, in order."""
    calls = [node for node in graph.nodes if not node.is_input]
    learns: set[int] = set()  # the outputs of calls that depend on weights
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
    """Tells whether training may change what a layer computes, now or after it is unfrozen."""
    if not isinstance(operation, Layer):
        return False
    return any(
        layer._weights_in_files() and not isinstance(layer, Normalization)
        for layer in operation._flatten_layers()
    )

"""Functional models as configuration dictionaries and back, in the form that Keras gives them."""

from __future__ import annotations

import inspect
from typing import Any

from kerascnn import serialization, trees
from kerascnn.models import op_config
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.symbolic.operation import OpCall, Operation, history_of

_OF_GRAPHS = frozenset({"name", "trainable", "layers", "input_layers", "output_layers"})


def from_model(model: Any) -> dict[str, Any]:
    """Layers with their calls, and which calls are the model's inputs and outputs.

    Raises:
        ValueError: for a model that calls a function which Keras has no operation for.
    """
    kept = _kept_nodes(model)
    layers = []
    for operation in model.operations:
        calls = [n for n in operation._inbound_nodes if id(n) in kept and not n.is_input]
        if isinstance(operation, OpCall):
            entry, arguments = op_config.serialize(operation, model.name)
            entry["name"] = operation.name
            entry["inbound_nodes"] = [_serialize_arguments(arguments, {}, kept)]
        else:
            entry = serialization.serialize_keras_object(operation)
            entry["name"] = operation.name
            entry["inbound_nodes"] = [
                _serialize_arguments(node.args, node.written_kwargs, kept) for node in calls
            ]
        layers.append(entry)

    def reference(tensor: KerasTensor) -> list[Any]:
        operation, node_index, tensor_index = history_of(tensor)
        node = operation._inbound_nodes[node_index]
        index = kept.get(id(node), 0) + _calls_before(operation)
        return [operation.name, index, tensor_index]

    return {
        "name": model.name,
        "trainable": model.trainable,
        "layers": layers,
        "input_layers": trees.map_structure(reference, model._graph.inputs),
        "output_layers": trees.map_structure(reference, model._graph.outputs),
    }


def _calls_before(operation: Operation) -> int:
    """Returns where Keras starts to count the calls: creating a model calls inner models once."""
    from kerascnn.models.functional import Functional

    return 1 if isinstance(operation, Functional) else 0


def _kept_nodes(model: Any) -> dict[int, int]:
    """Returns the calls that belong to the model, numbered for each operation."""
    inside = {id(node) for node in model._graph.nodes}
    kept: dict[int, int] = {}
    for operation in model.operations:
        index = 0
        for node in operation._inbound_nodes:
            if id(node) in inside:
                kept[id(node)] = index
                index += 1
    return kept


def _says_the_default(operation: Any, training: Any) -> bool:
    """Tells whether `training` is what `call` has by default; Keras notes that, to no effect."""
    call = getattr(operation, "call", None)
    parameter = None if call is None else inspect.signature(call).parameters.get("training")
    return parameter is not None and isinstance(training, bool) and parameter.default is training


def _serialize_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], kept: dict[int, int]
) -> dict[str, Any]:
    def entry(x: Any) -> Any:
        if not isinstance(x, KerasTensor):
            return serialization.serialize_keras_object(x)
        operation, node_index, tensor_index = history_of(x)
        parent = operation._inbound_nodes[node_index]
        return {
            "class_name": "__keras_tensor__",
            "config": {
                "shape": x.shape,
                "dtype": x.dtype,
                "keras_history": [operation.name, kept[id(parent)], tensor_index],
            },
        }

    return {
        "args": trees.map_structure(entry, args),
        "kwargs": trees.map_structure(entry, kwargs),
    }


def to_model(cls: Any, config: dict[str, Any], custom_objects: Any = None) -> Any:
    """The model that a configuration describes, with new weights.

    Raises:
        ValueError: where a call needs an output that no layer gives.
    """
    graph = _SavedGraph(config, custom_objects)
    graph.make_calls()
    inputs, outputs = graph.ends(config["input_layers"]), graph.ends(config["output_layers"])
    more = {key: value for key, value in config.items() if key not in _OF_GRAPHS}
    model = cls(inputs, outputs, name=config.get("name"), **more)
    if config.get("trainable") is False:
        model.trainable = False
    return model


class _SavedGraph:
    """The layers that a configuration describes, made anew, and their calls.

    Args:
        config: The configuration of a functional model.
        custom_objects: Classes and functions by the names that the configuration has for them.

    Raises:
        ValueError: where an entry describes no layer.
    """

    def __init__(self, config: dict[str, Any], custom_objects: Any) -> None:
        self._model_name = config.get("name")
        self._layers: dict[str, Operation] = {}
        # A layer that exists already has calls of its own, which the configuration does not count.
        self._earlier_calls: dict[str, int] = {}
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        for entry in config["layers"]:
            layer = op_config.deserialize(entry)
            if layer is None:
                layer = serialization.deserialize_object(entry, custom_objects, "kerascnn.layers")
            if not isinstance(layer, Operation):
                raise ValueError(f"Expected a layer for {entry['name']!r}. Received: {layer!r}")
            name, calls = entry["name"], entry["inbound_nodes"]
            self._layers[name] = layer
            self._earlier_calls[name] = len(layer._inbound_nodes) if calls else 0
            self._waiting += [(name, call) for call in calls]

    def make_calls(self) -> None:
        """Makes all calls, each when its inputs are there.

        Raises:
            ValueError: where a call needs an output that no layer gives, or none.
        """
        while self._waiting:
            later = []
            blocked: set[str] = set()
            for name, call in self._waiting:
                arguments = _restore((call["args"], call["kwargs"]), self._tensor)
                # The calls of a layer are numbered, so they must keep their order.
                if arguments is None or name in blocked:
                    blocked.add(name)
                    later.append((name, call))
                else:
                    self._make_call(name, *arguments)
            if len(later) == len(self._waiting):
                raise ValueError(
                    f"The configuration of model '{self._model_name}' does not connect: the calls "
                    f"of {sorted(blocked)} need outputs that no layer gives."
                )
            self._waiting = later

    def ends(self, structure: Any) -> Any:
        """Replaces the places of inputs or outputs by their tensors.

        Raises:
            ValueError: for a place that no call has.
        """
        if isinstance(structure, dict):
            return {key: self.ends(value) for key, value in structure.items()}
        if len(structure) == 3 and isinstance(structure[0], str):
            name, node_index, tensor_index = structure
            place = node_index - _calls_before(self._layers[name])
            found = self._tensor((name, place, tensor_index))
            if found is None:
                raise ValueError(f"There is no output {structure} among the layers' calls.")
            return found
        items = [self.ends(item) for item in structure]
        if hasattr(structure, "_fields"):
            return type(structure)(*items)
        return tuple(items) if isinstance(structure, tuple) else items

    def _tensor(self, reference: Any) -> KerasTensor | None:
        """Returns an output by layer, call and number, or None before the call is made."""
        name, node_index, tensor_index = reference
        nodes = self._layers[name]._inbound_nodes
        index = self._earlier_calls[name] + node_index
        if not 0 <= index < len(nodes):
            return None
        return nodes[index].output_tensors[tensor_index]

    def _make_call(self, name: str, args: Any, written_kwargs: dict[str, Any]) -> None:
        layer = self._layers[name]
        kwargs = {k: v for k, v in written_kwargs.items() if k != "mask" or v is not None}
        if _says_the_default(layer, kwargs.get("training")):
            del kwargs["training"]  # each call of the model decides this
        if not any(isinstance(x, KerasTensor) for x in trees.flatten((args, kwargs))):
            # It would be computed here and now, however large it is.
            raise ValueError(
                f"The configuration of model '{self._model_name}' calls {name!r} on no output of a "
                "layer, as no model does."
            )
        layer(*args, **kwargs)
        layer._inbound_nodes[-1].written_kwargs = written_kwargs


def _restore(structure: Any, tensor: Any) -> Any:
    """Replaces references by tensors; returns None if one does not exist yet."""
    missing = False

    def restore(x: Any) -> Any:
        nonlocal missing
        if isinstance(x, dict):
            if x.get("class_name") == "__keras_tensor__":
                found = tensor(x["config"]["keras_history"])
                missing = missing or found is None
                return found
            if "class_name" in x and "config" in x:
                return serialization.deserialize_object(x)
            return {key: restore(value) for key, value in x.items()}
        if isinstance(x, (list, tuple)):
            items = [restore(item) for item in x]
            # JSON only has lists, but an index of several axes is a tuple.
            index = any(isinstance(item, slice) or item is Ellipsis for item in items)
            return tuple(items) if index or isinstance(x, tuple) else items
        return x

    restored = restore(structure)
    return None if missing else restored

"""The content of a model's plot, before it is drawn: boxes, groups of boxes and arrows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kerascnn import trees
from kerascnn.symbolic.operation import history_of


class Style(NamedTuple):
    """What boxes show, and whether models inside the model are expanded; see `plot_model`."""

    show_shapes: bool
    show_dtype: bool
    show_layer_names: bool
    expand_nested: bool
    show_layer_activations: bool
    show_trainable: bool


class Cell(NamedTuple):
    """One field of a box: a label, text in bold, and the colors."""

    text: str
    bold: str
    background: str = "white"
    color: str | None = None


class Box(NamedTuple):
    """A box for one layer."""

    key: str
    name: str | None
    kind: str
    activation: str | None
    cells: list[Cell]


class Diagram(NamedTuple):
    """A model: its boxes and expanded models in their order, and arrows as pairs of keys."""

    name: str
    parts: list[Box | Diagram]
    edges: list[tuple[str, str]]

    def boxes(self) -> Iterator[Box]:
        """Yields all boxes, also those of expanded models."""
        for part in self.parts:
            if isinstance(part, Diagram):
                yield from part.boxes()
            else:
                yield part

    def all_edges(self) -> Iterator[tuple[str, str]]:
        """Yields all arrows, also those of expanded models."""
        for part in self.parts:
            if isinstance(part, Diagram):
                yield from part.all_edges()
        yield from self.edges


def describe(model: Any, style: Style) -> Diagram:
    """Returns the diagram of a model that is built; for a subclassed model it is a single box."""
    from kerascnn.models import Functional, Sequential

    layers: list[Any]
    if isinstance(model, Sequential):
        layers = model.layers
    elif isinstance(model, Functional):
        layers = model.operations
    else:
        return Diagram(model.name, [_box(model, style)], [])
    parts = [
        describe(layer, style) if style.expand_nested and _opens(layer) else _box(layer, style)
        for layer in layers
    ]
    return Diagram(model.name, parts, list(dict.fromkeys(_edges(model, style.expand_nested))))


def _opens(layer: Any) -> bool:
    from kerascnn.models import Functional, Sequential

    return isinstance(layer, (Functional, Sequential))


def _edges(model: Any, expand_nested: bool) -> Iterator[tuple[str, str]]:
    from kerascnn.models import Sequential

    if isinstance(model, Sequential):
        layers = model.layers
        if not expand_nested:
            yield from zip(map(_key, layers), map(_key, layers[1:]), strict=False)
            return
        # What comes before the first layer is an arrow of the outer model.
        pairs = [(layer, node) for layer in layers[1:] for node in layer._inbound_nodes]
    else:
        own = {id(node) for node in model._graph.nodes}
        pairs = [
            (layer, node)
            for layer in model.operations
            for node in layer._inbound_nodes
            if id(node) in own
        ]
    for layer, node in pairs:
        for place, tensor in enumerate(node.input_tensors):
            if not expand_nested:
                yield _key(history_of(tensor).operation), _key(layer)
            else:
                yield _key(_producer(tensor)), _key(_receiver(layer, place))


def _producer(tensor: Any) -> Any:
    """Returns the innermost layer that a tensor comes out of."""
    layer, _, output = history_of(tensor)
    while _opens(layer):
        layer, _, output = history_of(layer.outputs[output])  # type: ignore[attr-defined]
    return layer


def _receiver(layer: Any, place: int) -> Any:
    """Returns the innermost layer that takes the input number `place`."""
    from kerascnn.models import Functional

    while _opens(layer):
        if isinstance(layer, Functional):
            layer = history_of(layer.inputs[place]).operation
        else:
            layer = layer.layers[0]
    return layer


def _key(layer: Any) -> str:
    return str(id(layer))


def _box(layer: Any, style: Style) -> Box:
    kind = getattr(layer, "title", type(layer).__name__)
    activation = getattr(layer, "activation", None) if style.show_layer_activations else None
    name = layer.name if style.show_layer_names else None
    cells = list(_cells(layer, kind, style))
    return Box(_key(layer), name, kind, _function_name(activation), cells)


def _cells(layer: Any, kind: str, style: Style) -> Iterator[Cell]:
    inputs, outputs = _tensors(layer)
    if style.show_shapes:
        if kind != "InputLayer":
            yield Cell("Input shape: ", _shape_text(inputs))
        yield Cell("Output shape: ", _shape_text(outputs))
    if style.show_dtype:
        dtype = None if outputs is None else trees.map_structure(lambda x: x.dtype, outputs)
        yield Cell("Output dtype: ", str(dtype or "?"))
    if style.show_trainable and getattr(layer, "weights", None):
        if layer.trainable:
            yield Cell("", "Trainable", "forestgreen", "white")
        else:
            yield Cell("", "Non-trainable", "firebrick", "white")


def _tensors(layer: Any) -> tuple[Any, Any]:
    """Returns a layer's first inputs and outputs, or None for both if it was never called."""
    from kerascnn.models import Functional

    if isinstance(layer, Functional):
        return layer.input, layer.output
    if not layer._inbound_nodes:
        return None, None
    node = layer._inbound_nodes[0]
    sides = (node.input_tensors or node.output_tensors, node.output_tensors)
    inputs, outputs = (side[0] if len(side) == 1 else side for side in sides)
    return inputs, outputs


def _shape_text(tensors: Any) -> str:
    if tensors is None:
        return "?"
    shapes = trees.map_structure(lambda x: x.shape, tensors)
    if isinstance(shapes, dict):
        text = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
    else:
        text = str(shapes)
    return text.replace("{", "").replace("}", "")


def _function_name(function: Any) -> str | None:
    if function is None:
        return None
    return getattr(function, "name", None) or getattr(function, "__name__", None) or str(function)

"""The calls between a model's inputs and outputs, in the order of computation."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from kerascnn import trees
from kerascnn.symbolic.keras_tensor import KerasTensor
from kerascnn.symbolic.operation import Node, Operation, history_of, is_choice, node_of

# A region is the nested sides of choices: (id of the choice's node, number of the argument).
Region = tuple[tuple[int, int], ...]


class OperationGraph:
    """What lies between `inputs` and `outputs`.

    Args:
        inputs: KerasTensors, nested in any way.
        outputs: KerasTensors that are computed from them.
        name: Of the model, for errors.

    Raises:
        ValueError: where an output needs a tensor that does not come from the inputs.
    """

    def __init__(self, inputs: Any, outputs: Any, name: str) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.input_tensors: list[KerasTensor] = _checked(inputs, "inputs", name)
        self.output_tensors: list[KerasTensor] = _checked(outputs, "outputs", name)
        found, order = _reach(self.output_tensors, self.input_tensors, name)
        ends = {id(x) for x in self.input_tensors}
        # What computes an input is not part of the model, though it may compute other outputs too.
        found = [n for n in found if n.is_input or not all(id(x) in ends for x in n.output_tensors)]
        self.nodes, self.operations = _sorted_by_depth(found, order, self.input_tensors)
        self._check_connected(name)

    def _check_connected(self, name: str) -> None:
        known = {id(x) for x in self.input_tensors}
        passed: list[str] = []
        for node in self.nodes:
            for tensor in node.input_tensors:
                if id(tensor) not in known:
                    raise ValueError(
                        f"Graph disconnected in model '{name}': '{node.operation.name}' needs the "
                        f"tensor {tensor}, which does not come from the model's inputs "
                        f"{[x.name for x in self.input_tensors]}. Add the keras.Input that it "
                        f"comes from to `inputs`. Connected so far: {passed or 'nothing'}"
                    )
            if not node.is_input:
                known.update(id(x) for x in node.output_tensors)
                passed.append(node.operation.name)
        for tensor in self.output_tensors:
            if id(tensor) not in known:
                raise ValueError(
                    f"Graph disconnected in model '{name}': its output {tensor} does not come from "
                    f"its inputs {[x.name for x in self.input_tensors]}."
                )

    def run(self, values: Sequence[Any], call: Callable[[Operation], Callable[..., Any]]) -> Any:
        """The outputs for values of the inputs, nested as the outputs are.

        Args:
            values: One for each of `input_tensors`.
            call: What to do with each operation's arguments.
        """
        known = {id(x): v for x, v in zip(self.input_tensors, values, strict=True)}
        for node in self.nodes:
            if node.is_input or all(id(x) in known for x in node.output_tensors):
                continue
            args, kwargs = node.fill_in(known)
            results = trees.flatten(call(node.operation)(*args, **kwargs))
            known.update({id(x): v for x, v in zip(node.output_tensors, results, strict=True)})
        return trees.map_structure(lambda x: known[id(x)], self.outputs)

    def compute(self, values: Sequence[Any]) -> Any:
        """Computes the outputs for values; each `ops.cond` computes only the chosen side."""
        if any(isinstance(value, KerasTensor) for value in values):
            return self.run(values, lambda operation: operation)
        known = {id(x): v for x, v in zip(self.input_tensors, values, strict=True)}
        self._compute_region((), known)
        return trees.map_structure(lambda x: known[id(x)], self.outputs)

    def _compute_region(self, region: Region, known: dict[int, Any]) -> None:
        for node in self._regions.get(region, []):
            if node.is_input or all(id(x) in known for x in node.output_tensors):
                continue
            if is_choice(node.operation):
                results = self._chosen(node, region, known)
            else:
                args, kwargs = node.fill_in(known)
                results = node.operation(*args, **kwargs)
            flat = trees.flatten(results)
            known.update({id(x): v for x, v in zip(node.output_tensors, flat, strict=True)})

    def _chosen(self, choice: Node, region: Region, known: dict[int, Any]) -> Any:
        from kerascnn.ops import control, dispatch

        def side(number: int) -> Any:
            own = dict(known)
            self._compute_region((*region, (id(choice), number)), own)
            values = [own.get(id(x), x) for x in trees.leaves(choice.args[number])]
            pairs = zip(values, choice.output_tensors, strict=True)
            flat = [dispatch.convert(value, x.dtype) for value, x in pairs]
            # No mask is passed on from here, since the two sides may have different ones.
            return [dispatch.apply_one("reshape", [y], {"shape": list(y.shape)}) for y in flat]

        pred = known.get(id(choice.args[0]), choice.args[0])
        return control.cond(pred, lambda: side(1), lambda: side(2))

    @functools.cached_property
    def _regions(self) -> dict[Region, list[Node]]:
        """The calls by the sides of choices that they are needed for only, in their order.

        A side of a choice in a side of another has the way there as its name; what is needed
        otherwise has none.
        """
        uses: dict[int, list[Region]] = {id(x): [()] for x in self.output_tensors}
        regions: dict[int, Region] = {}
        for node in reversed(self.nodes):
            ways = [way for x in node.output_tensors for way in uses.get(id(x), [])]
            region = regions[id(node)] = _common(ways)
            if is_choice(node.operation):
                for number, argument in enumerate(node.args):
                    way = (*region, (id(node), number)) if number else region
                    for x in trees.leaves(argument):
                        uses.setdefault(id(x), []).append(way)
            else:
                for x in node.input_tensors:
                    uses.setdefault(id(x), []).append(region)
        found: dict[Region, list[Node]] = {}
        for node in self.nodes:
            found.setdefault(regions[id(node)], []).append(node)
        return found


def _common(ways: Sequence[Region]) -> Region:
    """Returns the common beginning of all regions."""
    common = ways[0] if ways else ()
    for way in ways[1:]:
        pairs = itertools.takewhile(lambda p: p[0] == p[1], zip(common, way, strict=False))
        common = tuple(pair[0] for pair in pairs)
    return common


def _checked(tensors: Any, what: str, name: str) -> list[KerasTensor]:
    flat = trees.flatten(tensors)
    for x in flat:
        if not isinstance(x, KerasTensor) or x._keras_history is None:
            raise ValueError(
                f"The `{what}` of model '{name}' must be what keras.Input and the calls of layers "
                f"return. Received: {x!r} (of type {type(x)})"
            )
    if not flat:
        raise ValueError(f"A model needs `{what}`. Received: {what}={tensors!r}")
    if what == "inputs" and len({id(x) for x in flat}) != len(flat):
        raise ValueError(f"An input of model '{name}' is listed more than once: {tensors}")
    return flat


def _reach(
    outputs: Sequence[KerasTensor], inputs: Sequence[KerasTensor], name: str
) -> tuple[list[Node], dict[int, int]]:
    """All calls that the outputs need, each after what it needs, and each operation's number.

    The walk goes from the outputs back, with a stack of its own: networks can be deep.
    """
    ends = {id(x) for x in inputs}
    finished: dict[int, Node] = {}
    open_nodes: set[int] = set()
    numbers: dict[int, int] = {}
    stack: list[tuple[KerasTensor, bool]] = [(x, False) for x in reversed(outputs)]
    while stack:
        tensor, parents_done = stack.pop()
        node = node_of(tensor)
        if parents_done:
            open_nodes.discard(id(node))
            finished.setdefault(id(node), node)
            continue
        if id(node) in finished:
            continue
        if id(node) in open_nodes:
            raise ValueError(f"Model '{name}': the call of '{node.operation.name}' needs itself.")
        numbers.setdefault(id(node.operation), len(numbers))
        open_nodes.add(id(node))
        stack.append((tensor, True))
        if not node.is_input and id(tensor) not in ends:
            known = [x for x in node.input_tensors if x._keras_history is not None]
            parents = [x for x in known if id(node_of(x)) not in finished]
            stack.extend((x, False) for x in reversed(_without_repeats(parents)))
    return list(finished.values()), numbers


def _without_repeats(tensors: Sequence[KerasTensor]) -> list[KerasTensor]:
    """Keeps one tensor for each call, the first."""
    return list({id(node_of(x)): x for x in reversed(tensors)}.values())[::-1]


def _sorted_by_depth(
    nodes: Sequence[Node], numbers: dict[int, int], inputs: Sequence[KerasTensor]
) -> tuple[list[Node], list[Operation]]:
    """Calls and operations from the inputs to the outputs.

    The depth of a call is the longest way from it to an output. Within one depth, operations keep
    the order of the walk: it decides the order of the weights.
    """
    node_depth: dict[int, int] = {}
    operation_depth: dict[int, int] = {}
    operations: dict[int, Operation] = {}
    present = {id(node) for node in nodes}
    for node in reversed(nodes):
        key = id(node.operation)
        operations[key] = node.operation
        depth = max(node_depth.get(id(node), 0), operation_depth.get(key, 0))
        node_depth[id(node)] = operation_depth[key] = depth
        for parent in node.parent_nodes:
            if id(parent) in present:
                node_depth[id(parent)] = max(depth + 1, node_depth.get(id(parent), 0))
    for tensor in inputs:  # unused inputs belong to the model too
        operation = history_of(tensor).operation
        if id(operation) not in operations:
            operations[id(operation)] = operation
            operation_depth[id(operation)] = 0
            numbers[id(operation)] = -1
    by_depth = sorted(operations.values(), key=lambda o: (-operation_depth[id(o)], numbers[id(o)]))
    return sorted(nodes, key=lambda n: -node_depth[id(n)]), by_depth

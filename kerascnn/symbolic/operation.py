"""Operation, which can be called on KerasTensors, and Node, which is one such call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from kerascnn import naming, trees
from kerascnn.symbolic import auto_config
from kerascnn.symbolic.keras_tensor import KerasHistory, KerasTensor
from kerascnn.tracebacks import filter_traceback

P = ParamSpec("P")
R = TypeVar("R")


def any_symbolic(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tells whether a KerasTensor is among the arguments of a call, however nested."""
    return _has_symbolic(args) or (bool(kwargs) and _has_symbolic(kwargs.values()))


def _has_symbolic(items: Iterable[Any]) -> bool:
    # Every call of every op asks this, and a plain loop makes traces noticeably faster.
    for item in items:
        if isinstance(item, KerasTensor):
            return True
        if isinstance(item, (list, tuple)):
            if _has_symbolic(item):
                return True
        elif isinstance(item, dict) and _has_symbolic(item.values()):
            return True
    return False


class Node:
    """One call of an operation on KerasTensors: its arguments and what came out.

    Args:
        operation: What was called.
        args: Positional arguments, with KerasTensors in them.
        kwargs: Keyword arguments.
        outputs: KerasTensors, nested as the operation returns them.
        written_kwargs: The keyword arguments that stand in files, where others than `kwargs` do.
    """

    def __init__(
        self,
        operation: Operation,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: Any,
        written_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.operation = operation
        self.args = args
        self.kwargs = kwargs
        self.written_kwargs = kwargs if written_kwargs is None else written_kwargs
        self.outputs = outputs
        self.input_tensors: list[KerasTensor] = [
            x for x in trees.leaves((args, kwargs)) if isinstance(x, KerasTensor)
        ]
        self.output_tensors: list[KerasTensor] = trees.flatten(outputs)
        index = len(operation._inbound_nodes)
        if all(x.record_history for x in self.input_tensors):
            for position, tensor in enumerate(self.output_tensors):
                tensor._keras_history = KerasHistory(operation, index, position)
        operation._inbound_nodes.append(self)
        for parent in self.parent_nodes:
            parent.operation._outbound_nodes.append(self)

    @property
    def is_input(self) -> bool:
        return not self.input_tensors

    @property
    def parent_nodes(self) -> list[Node]:
        """The calls that this call's arguments come from, without repetition."""
        nodes: dict[int, Node] = {}
        for tensor in self.input_tensors:
            if tensor._keras_history is not None:
                node = node_of(tensor)
                nodes[id(node)] = node
        return list(nodes.values())

    def fill_in(self, values: dict[int, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with each KerasTensor replaced by `values[id(it)]`."""

        def value(x: Any) -> Any:
            return values[id(x)] if isinstance(x, KerasTensor) else x

        return trees.map_structure(value, self.args), trees.map_structure(value, self.kwargs)


def history_of(tensor: KerasTensor) -> KerasHistory:
    """Returns where a KerasTensor comes from.

    Raises:
        ValueError: for one that does not come from a keras.Input.
    """
    if tensor._keras_history is None:
        raise ValueError(f"{tensor!r} does not come from a keras.Input or the call of a layer.")
    return tensor._keras_history


def node_of(tensor: KerasTensor) -> Node:
    """Returns the call that produced a KerasTensor."""
    operation, node_index, _ = history_of(tensor)
    return operation._inbound_nodes[node_index]


class Operation:
    """What can be called on KerasTensors: layers, models, functions of `ops`, and your own.

    A subclass implements `call` with `kerascnn.ops`, and may say what it returns by
    `compute_output_spec`; where it doesn't, a recorded call tells.

    Args:
        name: By default the class name with a number.

    Example:

    >>> import kerascnn as keras
    >>> class Twice(keras.Operation):
    ...     def call(self, x):
    ...         return x * 2
    >>> inputs = keras.Input((3,))
    >>> keras.Model(inputs, Twice()(inputs)).output_shape
    (None, 3)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        operation = super().__new__(cls)
        if auto_config.is_wanted(cls):
            auto_config.note(operation, args, kwargs)
        return operation

    def __init__(self, name: str | None = None) -> None:
        if name is None:
            name = naming.auto_name(naming.to_snake_case(type(self).__name__))
        if not isinstance(name, str) or "/" in name:
            raise ValueError(
                "The name of a layer must be a string without '/', which separates the names in a "
                f"variable's path. Received: name={name!r} (of type {type(name)})"
            )
        self.name = name
        self._inbound_nodes: list[Node] = []
        self._outbound_nodes: list[Node] = []

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The computation; subclasses override it."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `call`.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Computes, or records the call where a KerasTensor is among the arguments."""
        if any_symbolic(args, kwargs):
            return self.symbolic_call(*args, **kwargs)
        return self.call(*args, **kwargs)

    def symbolic_call(self, *args: Any, **kwargs: Any) -> Any:
        """Returns what a call on KerasTensors gives: KerasTensors that come from it."""
        outputs = self.compute_output_spec(*args, **kwargs)
        Node(self, args, kwargs, outputs)
        return outputs

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """The KerasTensors that calling with these arguments would give."""
        from kerascnn.symbolic import inference

        return inference.infer(self.call, args, kwargs)

    @auto_config.default
    def get_config(self) -> dict[str, Any]:
        """The arguments that make another one like this, as plain values.

        Where a subclass does not say them, they are those that it was made with.

        Raises:
            NotImplementedError: for arguments that are no plain values.
        """
        return auto_config.add_arguments(self, {"name": self.name})

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """An operation of a configuration that `get_config` gave."""
        return cls(**config)

    @property
    def input(self) -> Any:
        """The KerasTensor(s) that this was first called on."""
        tensors = self._first_node("input").input_tensors
        return tensors[0] if len(tensors) == 1 else tensors

    @property
    def output(self) -> Any:
        """The KerasTensor(s) that came out of the first call."""
        tensors = trees.flatten(self._first_node("output").outputs)
        return tensors[0] if len(tensors) == 1 else tensors

    def _first_node(self, what: str) -> Node:
        if not self._inbound_nodes:
            raise AttributeError(
                f"The layer '{self.name}' has never been called on a keras.Input: it has no "
                f"defined {what}."
            )
        return self._inbound_nodes[0]


class OpCall(Operation):
    """A call of a function of `kerascnn.ops` in a functional graph."""

    def __init__(self, function: Callable[..., Any]) -> None:
        title = "".join(part.capitalize() for part in function.__name__.split("_"))
        super().__init__(naming.auto_name(naming.to_snake_case(title)))
        self.function = function
        self.title = title

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def is_choice(operation: Operation) -> bool:
    """Tells whether it returns one of two arguments, so that only that one must be computed."""
    return isinstance(operation, OpCall) and getattr(operation.function, "is_choice", False)


def op(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a function of tensors take KerasTensors too; such a call is a node of the model."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if any_symbolic(args, kwargs):
            return recorded(*args, **kwargs)
        return function(*args, **kwargs)

    @filter_traceback
    def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
        return OpCall(call)(*args, **kwargs)

    return call

"""All variables of a model as nested dictionaries, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kerascnn.variable import Variable


class StateTree:
    """The part of `Model` that gives and takes all of its state."""

    def get_state_tree(self: Any, value_format: str = "backend_tensor") -> dict[str, Any]:
        """The values of all variables, nested by the names in their paths.

        Args:
            value_format: "backend_tensor" or "numpy_array".

        Returns:
            A dictionary with "trainable_variables", "non_trainable_variables",
            "optimizer_variables" and "metrics_variables".

        Raises:
            ValueError: for another format, or two variables of one path.

        Example:

        >>> import kerascnn as keras
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="d")], name="m")
        >>> model.get_state_tree()["trainable_variables"]["m"]["d"]["kernel"].shape
        (2, 1)
        """
        if value_format not in ("backend_tensor", "numpy_array"):
            raise ValueError(
                "`value_format` must be 'backend_tensor' or 'numpy_array'. Received: "
                f"value_format={value_format!r}"
            )
        return {
            name: _nested(variables, value_format == "numpy_array")
            for name, variables in self._state_groups().items()
        }

    def set_state_tree(self: Any, state_tree: dict[str, Any]) -> None:
        """Gives variables the values of a tree that `get_state_tree` gave, or of parts of it.

        Args:
            state_tree: Values nested by the names in the variables' paths, below one or several of
                the keys that `get_state_tree` has; tensors or arrays. Other variables keep their
                values.

        Raises:
            ValueError: for a name or a path that the model does not have, or a value of another
                shape; nothing is assigned then.

        Example:

        >>> import kerascnn as keras
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="d")], name="m")
        >>> model.set_state_tree({"trainable_variables": {"m": {"d": {"bias": [5.0]}}}})
        >>> model.weights[1].numpy().tolist()
        [5.0]
        """
        groups = self._state_groups()
        found: list[tuple[Variable, Any]] = []
        for name, tree in state_tree.items():
            if name not in groups:
                raise ValueError(
                    f"set_state_tree: a tree has {', '.join(groups)}. Received: {name!r}"
                )
            by_path = {variable.path: variable for variable in groups[name]}
            for path, value in _leaves(tree):
                variable = by_path.get(path)
                if variable is None:
                    raise ValueError(
                        f"set_state_tree: no variable in {name} has the path '{path}'."
                    )
                if np.shape(value) != variable.shape:
                    raise ValueError(
                        f"set_state_tree: the variable '{path}' has shape {variable.shape}; "
                        f"received {np.shape(value)}."
                    )
                found.append((variable, value))
        for variable, value in found:
            variable.assign(value)

    def _state_groups(self: Any) -> dict[str, list[Variable]]:
        optimizer = getattr(self, "optimizer", None)
        return {
            "trainable_variables": self.trainable_variables,
            "non_trainable_variables": self.non_trainable_variables,
            "optimizer_variables": [] if optimizer is None else optimizer.variables,
            "metrics_variables": self.metrics_variables,
        }


def _nested(variables: list[Variable], as_arrays: bool) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for variable in variables:
        *parts, name = variable.path.split("/")
        node = tree
        for part in parts:
            node = node.setdefault(part, {})
        if name in node:
            raise ValueError(
                f"get_state_tree: two variables have the path '{variable.path}'. Give the layers "
                "names that differ."
            )
        node[name] = variable.numpy() if as_arrays else variable.core.value.copy()
    return tree


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value

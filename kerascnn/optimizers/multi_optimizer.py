"""Several optimizers, each for its own variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

from kerascnn import serialization, tracing
from kerascnn.distribution import replicas
from kerascnn.distribution.sharded_state import Elsewhere, Shards
from kerascnn.optimizers.loss_scale_optimizer import LossScaleOptimizer
from kerascnn.optimizers.optimizer import Optimizer
from kerascnn.variable import Variable


class OptimizerMap(MutableMapping):
    """Optimizers by the path of a variable.

    Args:
        default_optimizer: for paths that nothing else matches.
        optimizer_map: from regular expressions that match whole paths to optimizers.

    Raises:
        TypeError: for arguments of another kind.

    >>> choice = keras.optimizers.OptimizerMap(keras.optimizers.Adam())
    >>> choice["head/.*"] = keras.optimizers.SGD(0.1)
    >>> type(choice["head/kernel"]).__name__, type(choice["body/kernel"]).__name__
    ('SGD', 'Adam')
    """

    def __init__(
        self, default_optimizer: Optimizer, optimizer_map: dict[str, Optimizer] | None = None
    ) -> None:
        if not isinstance(default_optimizer, Optimizer):
            raise TypeError(
                f"`default_optimizer` must be an optimizer. Received: {default_optimizer!r}"
            )
        if optimizer_map is not None and not isinstance(optimizer_map, dict):
            raise TypeError(f"`optimizer_map` must be a dictionary. Received: {optimizer_map!r}")
        self._default_optimizer = default_optimizer
        self._optimizer_map = optimizer_map or {}

    @property
    def default_optimizer(self) -> Optimizer:
        """The optimizer of variables that no key stands for."""
        return self._default_optimizer

    def __getitem__(self, key: str) -> Optimizer:
        if key in self._optimizer_map:
            return self._optimizer_map[key]
        matches = [pattern for pattern in self._optimizer_map if re.fullmatch(pattern, key)]
        if len(matches) > 1:
            raise ValueError(
                f"Several patterns match the variable {key}: {', '.join(matches)}. One optimizer "
                "has to be left."
            )
        return self._optimizer_map[matches[0]] if matches else self._default_optimizer

    def __setitem__(self, key: str, optimizer: Optimizer) -> None:
        if key in self._optimizer_map:
            raise ValueError(f"There is an optimizer for {key!r}: {self._optimizer_map[key]!r}")
        if not isinstance(key, str):
            raise ValueError(f"A key must be a string. Received: {key!r}")
        _check_member(optimizer)
        self._optimizer_map[key] = optimizer

    def __delitem__(self, key: str) -> None:
        del self._optimizer_map[key]

    def __len__(self) -> int:
        return len(self._optimizer_map)

    def __iter__(self) -> Iterator[str]:
        return iter(self._optimizer_map)

    def __call__(self, variable: Variable) -> Optimizer:
        return self[variable.path]

    def get_config(self) -> dict[str, Any]:
        """The arguments that make another one like it; values of JSON.

        Returns:
            A dictionary, which `from_config` takes.
        """
        return {
            "default_optimizer": serialization.serialize_object(self._default_optimizer),
            "optimizer_map": serialization.serialize_object(self._optimizer_map),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> OptimizerMap:
        """Makes one of what `get_config` returned.

        Args:
            config: The dictionary.
            custom_objects: Classes of optimizers by the names that the dictionary has for them.
        """
        from kerascnn.optimizers import deserialize

        others = {
            key: deserialize(value, custom_objects)
            for key, value in config["optimizer_map"].items()
        }
        return cls(deserialize(config["default_optimizer"], custom_objects), others)


class MultiOptimizer(Optimizer):
    """Updates each variable with the optimizer that a map chooses for it.

    Args:
        optimizer_map: an `OptimizerMap`, or a function from a variable to its optimizer.
        loss_scale_factor: see `Optimizer`; it becomes that of all optimizers.
        name: see `Optimizer`.

    Raises:
        ValueError: in `build`, where the choice for a variable is no optimizer, or one of those
            that hold others.

    >>> choice = keras.optimizers.OptimizerMap(keras.optimizers.SGD(1.0))
    >>> choice["slow"] = keras.optimizers.SGD(0.1)
    >>> weights = [keras.Variable([1.0], name="fast"), keras.Variable([1.0], name="slow")]
    >>> keras.optimizers.MultiOptimizer(choice).apply([np.ones(1, "float32")] * 2, weights)
    >>> [round(float(w.numpy()[0]), 4) for w in weights]
    [0.0, 0.9]
    """

    def __init__(
        self,
        optimizer_map: Callable[[Variable], Optimizer],
        loss_scale_factor: float | None = None,
        name: str | None = None,
    ) -> None:
        self._inner_optimizers: list[Optimizer] = []
        self._averages = True
        super().__init__(0.0, loss_scale_factor=loss_scale_factor, name=name)
        self._optimizer_map = optimizer_map
        self._optimizer_of: dict[int, Optimizer] = {}
        known = list(optimizer_map.values()) if isinstance(optimizer_map, OptimizerMap) else []
        default = getattr(optimizer_map, "default_optimizer", None)
        for optimizer in [*known, *([] if default is None else [default])]:
            self._add(optimizer)

    def _add(self, optimizer: Optimizer) -> None:
        if all(optimizer is not one for one in self._inner_optimizers):
            optimizer.loss_scale_factor = self.loss_scale_factor
            self._inner_optimizers.append(optimizer)
            self._averages_gradients = self._averages

    @property
    def _averages_gradients(self) -> bool:
        return self._averages

    @_averages_gradients.setter
    def _averages_gradients(self, value: bool) -> None:
        self._averages = value
        together = replicas.active()
        shares = together is not None and together.shares_state
        for optimizer in self._inner_optimizers:
            # One that gathers averages when its update is due, and where processes share the state
            # each knows who gets them; those of the others go together.
            averages = shares or bool(optimizer.gradient_accumulation_steps)
            optimizer._averages_gradients = value and averages

    @property
    def loss_scale_factor(self) -> float | None:
        """What the loss is multiplied by before gradients are taken, in all of its optimizers."""
        return self._loss_scale_factor

    @loss_scale_factor.setter
    def loss_scale_factor(self, value: float | None) -> None:
        self._loss_scale_factor = value
        for optimizer in self._inner_optimizers:
            optimizer.loss_scale_factor = value

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        for variable in variables:
            optimizer = self._optimizer_map(variable)
            _check_member(optimizer, f" for the variable {variable.path}")
            self._add(optimizer)
            self._optimizer_of[id(variable)] = optimizer
        self._averages_gradients = self._averages  # for all of them, and the processes of now
        for optimizer, own in self._shares(variables):
            optimizer.build(own)
        super().build(variables)
        self._shards = None  # it has no state of weights itself

    def _shares(self, variables: Sequence[Variable]) -> list[tuple[Optimizer, list[Variable]]]:
        shares = [
            (optimizer, [v for v in variables if self._optimizer_of[id(v)] is optimizer])
            for optimizer in self._inner_optimizers
        ]
        return [(optimizer, own) for optimizer, own in shares if own]

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers within."""
        return self._inner_optimizers

    def _whole_state(self) -> list[Variable | Elsewhere]:
        inner = self._inner_optimizers
        return [*super()._whole_state(), *(v for one in inner for v in one._whole_state())]

    def _owned_state(self) -> list[tuple[Variable | Elsewhere, int | None]]:
        own = [(variable, None) for variable in super()._whole_state()]
        return [*own, *(pair for one in self._inner_optimizers for pair in one._owned_state())]

    def _inner(self) -> list[Optimizer]:
        return [optimizer for optimizer in self._inner_optimizers if optimizer.built]

    def _own_slots(self) -> list[Variable]:
        inner = self._inner_optimizers
        return [*super()._own_slots(), *(v for one in inner for v in one._own_slots())]

    def _current_shards(self) -> Shards | None:
        found = [optimizer._current_shards() for optimizer in self._inner_optimizers]
        return next((shards for shards in found if shards is not None), None)

    def _is_own(self, variables: Sequence[Variable]) -> list[bool]:
        return [self._optimizer_of[id(v)]._is_own([v])[0] for v in variables]

    def _mean_gradients(self, grads: Sequence[Any], variables: Sequence[Variable]) -> list[Any]:
        if self._current_shards() is None:
            return replicas.mean_gradients(grads)
        mean_of: dict[int, Any] = {}
        gradient_of = {id(v): g for g, v in zip(grads, variables, strict=True)}
        for optimizer, share in self._shares(variables):
            means = optimizer._mean_gradients([gradient_of[id(v)] for v in share], share)
            mean_of.update(zip(map(id, share), means, strict=True))
        return [mean_of[id(v)] for v in variables]

    @property
    def learning_rate(self) -> Any:
        raise AttributeError(
            "A MultiOptimizer has no learning rate: those of its `optimizers` can be read and set."
        )

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        raise AttributeError(
            "A MultiOptimizer has no learning rate: those of its `optimizers` can be read and set."
        )

    def apply(
        self, grads: Sequence[Any], trainable_variables: Sequence[Variable] | None = None
    ) -> None:
        """As `Optimizer.apply`, each optimizer taking its own variables."""
        grads = list(grads)
        if not grads:
            return
        given = self._trainable_variables if trainable_variables is None else trainable_variables
        variables = list(given)
        if not self.built:
            self.build(variables)
        self._check_apply(grads, variables)
        self._averages_gradients = self._averages
        if self._averages:
            inner = [self._optimizer_of[id(v)]._averages_gradients for v in variables]
            own = [None if is_left else g for g, is_left in zip(grads, inner, strict=True)]
            means = replicas.mean_gradients(own)
            grads = [g if mean is None else mean for g, mean in zip(grads, means, strict=True)]
        gradient_of = {id(v): g for g, v in zip(grads, variables, strict=True)}
        for optimizer, share in self._shares(variables):
            optimizer.apply([gradient_of[id(v)] for v in share], share)
        with tracing.scope(self.name, phase="update"):
            self._count_step()

    def _local_sums(self) -> list[Variable]:
        return [total for optimizer in self._inner_optimizers for total in optimizer._local_sums()]

    def _sums_under_way(self) -> list[Variable]:
        inner = self._inner_optimizers
        return [total for optimizer in inner for total in optimizer._sums_under_way()]

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        for optimizer, own in self._shares(list(var_list) if self.built else []):
            optimizer.finalize_variable_values(own)

    @property
    def trace_key(self) -> tuple:
        inner = [part for optimizer in self._inner_optimizers for part in optimizer.trace_key]
        return (*super().trace_key, *inner)

    def get_config(self) -> dict[str, Any]:
        return {
            "optimizer_map": serialization.serialize_object(self._optimizer_map),
            "loss_scale_factor": self.loss_scale_factor,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> MultiOptimizer:
        config = dict(config)
        config["optimizer_map"] = serialization.deserialize_object(
            config["optimizer_map"], custom_objects, "kerascnn.optimizers"
        )
        return cls(**config)


def _check_member(optimizer: Any, where: str = "") -> None:
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"An optimizer was expected{where}. Received: {optimizer!r}")
    if isinstance(optimizer, (LossScaleOptimizer, MultiOptimizer)):
        raise ValueError(
            f"{type(optimizer).__name__} cannot be inside of a MultiOptimizer; put it around it."
        )

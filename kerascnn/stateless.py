"""Calls without side effects: variables are read from values that are given, and keep their own.

What classes have of it is mixed into them from here. As functions of values these methods may be
differentiated (`keras.value_and_grad`) and compiled (`keras.jit`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from kerascnn import tracing
from kerascnn.ops import dispatch
from kerascnn.variable import Variable, VariableScope


class StatelessScope(VariableScope):
    """A block in which variables have other values, and assignments are only noted.

    Args:
        state_mapping: Pairs of a variable and a tensor of its shape, which is read in its place.
        collect_losses: Whether what layers add by `add_loss` is noted in `losses` too.
        initialize_variables: Kept for Keras' signature: new variables have their values at once.

    Random numbers without a seed of their own come from the program's one generator, which is
    no state of a layer: it moves on as ever.

    Raises:
        ValueError: for what is no variable, or a value of another shape.

    Example:

    >>> import kerascnn as keras
    >>> v = keras.Variable(1.0)
    >>> with keras.StatelessScope([(v, 5.0)]) as scope:
    ...     _ = v.assign_add(2.0)
    >>> float(scope.get_current_value(v)), float(v.value)
    (7.0, 1.0)
    """

    def __init__(
        self,
        state_mapping: Iterable[tuple[Variable, Any]] | None = None,
        collect_losses: bool = False,
        initialize_variables: bool = True,
    ) -> None:
        super().__init__()
        self.collect_losses = collect_losses
        self.initialize_variables = initialize_variables
        self.losses: list[Any] = []
        self._values: dict[Any, Any] = {}
        for variable, value in state_mapping or ():
            if not isinstance(variable, Variable):
                raise ValueError(
                    "StatelessScope: state_mapping must consist of pairs (variable, value). "
                    f"Received {variable!r} of type {type(variable).__name__} for a variable."
                )
            value = dispatch.convert(value, variable.core.dtype)
            if tuple(value.shape) != variable.shape:
                raise ValueError(
                    f"StatelessScope: the variable '{variable.path}' has shape {variable.shape}; "
                    f"received a value of shape {tuple(value.shape)} for it."
                )
            self._values[variable.core] = value
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> StatelessScope:
        self._exits.enter_context(self._active())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._exits.close()

    is_stateless = True

    def in_other_trace(self) -> VariableScope | None:
        trace = tracing.current()
        # A loop's body gets the variables' values in this scope, and its results come back here.
        return None if trace is not None and trace.is_body_of(self.trace) else self

    def read(self, variable: Variable) -> Any:
        value = self._values.get(variable.core)
        return self._read_outside(variable) if value is None else value

    def takes(self, core: Any, value: Any) -> bool:
        trace = tracing.current()
        # such a trace only infers shapes
        if trace is not self.trace and trace is not None and trace.scratch:
            return False
        self._values[core] = value
        return True

    def holds(self, core: Any) -> bool:
        return core in self._values or super().holds(core)

    def get_current_value(self, variable: Variable) -> Any:
        """Returns the value that was given or last assigned to a variable here, or None."""
        return self._values.get(variable.core)

    def add_update(self, update: tuple[Variable, Any]) -> None:
        """Notes a new value, as an assignment does."""
        variable, value = update
        self.takes(variable.core, value)

    def add_loss(self, loss: Any) -> None:
        """Notes a loss."""
        self.losses.append(loss)


class StatelessLayer:
    """The part of `Layer` that computes from given values."""

    def stateless_call(
        self: Any,
        trainable_variables: Sequence[Any],
        non_trainable_variables: Sequence[Any],
        *args: Any,
        return_losses: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Returns what a call gives if the variables have these values; changes nothing.

        Args:
            trainable_variables: Values in the order of `self.trainable_variables`.
            non_trainable_variables: The same, of `self.non_trainable_variables`.
            *args: Arguments of the call.
            return_losses: Whether to return `losses` too.
            **kwargs: Arguments of the call.

        Returns:
            (outputs, the values of `non_trainable_variables` after the call), and with
            `return_losses` the losses as a third.

        Raises:
            ValueError: for a layer that is not built, or another number of values.

        Example:

        >>> import kerascnn as keras
        >>> layer = keras.layers.Dense(1)
        >>> layer.build((None, 2))
        >>> x = keras.ops.array([[3.0, 4.0]])
        >>> layer.stateless_call([[[1.0], [2.0]], [0.5]], [], x)[0].numpy().tolist()
        [[11.5]]
        """
        owner = f"layer '{self.name}'"
        if not self.built:
            raise ValueError(
                f"stateless_call: {owner} has no variables yet that could be given values. Call "
                "it on data, or call `build(input_shape)`."
            )
        non_trainable = self.non_trainable_variables
        mapping = _pairs(
            "trainable_variables", owner, self.trainable_variables, trainable_variables
        )
        mapping += _pairs("non_trainable_variables", owner, non_trainable, non_trainable_variables)
        with StatelessScope(mapping) as scope:
            outputs = self(*args, **kwargs)
            losses = self.losses if return_losses else None
            self._clear_losses()
        after = [scope.get_current_value(v) for v in non_trainable]
        return (outputs, after, losses) if return_losses else (outputs, after)


class StatelessTrainer:
    """The part of `Trainer` that computes from given values."""

    def stateless_compute_loss(
        self: Any,
        trainable_variables: Sequence[Any],
        non_trainable_variables: Sequence[Any],
        metrics_variables: Sequence[Any],
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> tuple[Any, tuple[list[Any], list[Any], list[Any]]]:
        """`compute_loss` from given values of all variables; changes nothing.

        Returns:
            (loss, (the values of the three lists of variables after it)).

        Raises:
            ValueError: for another number of values.
        """
        owner = f"model '{self.name}'"
        given = {
            "trainable_variables": trainable_variables,
            "non_trainable_variables": non_trainable_variables,
            "metrics_variables": metrics_variables,
        }
        mapping = []
        for name, values in given.items():
            mapping += _pairs(name, owner, getattr(self, name), values)
        with StatelessScope(mapping) as scope:
            loss = self._compute_loss(x, y, y_pred, sample_weight, training=training)
        after = ([scope.get_current_value(v) for v in getattr(self, name)] for name in given)
        trained, fixed, counted = after
        return loss, (trained, fixed, counted)


class StatelessMetric:
    """The part of `Metric` that computes from given values."""

    def stateless_update_state(
        self: Any, metric_variables: Sequence[Any], *args: Any, **kwargs: Any
    ) -> list[Any]:
        """Returns the values of `variables` after `update_state`, starting from these."""
        scope = self._scope(metric_variables)
        with scope:
            self.update_state(*args, **kwargs)
        return [scope.get_current_value(v) for v in self.variables]

    def stateless_result(self: Any, metric_variables: Sequence[Any]) -> Any:
        """Returns the result for these values of `variables`."""
        with self._scope(metric_variables):
            return self.result()

    def stateless_reset_state(self: Any) -> list[Any]:
        """Returns the values of `variables` after `reset_state`."""
        scope = self._scope([v.value for v in self.variables])
        with scope:
            self.reset_state()
        return [scope.get_current_value(v) for v in self.variables]

    def _scope(self: Any, values: Sequence[Any]) -> StatelessScope:
        owner = f"metric '{self.name}'"
        return StatelessScope(_pairs("metric_variables", owner, self.variables, values))


class StatelessOptimizer:
    """The part of `Optimizer` that computes from given values."""

    def stateless_apply(
        self: Any,
        optimizer_variables: Sequence[Any],
        grads: Sequence[Any],
        trainable_variables: Sequence[Any],
    ) -> tuple[list[Any], list[Any]]:
        """A step from given values; changes nothing.

        Args:
            optimizer_variables: Values in the order of `self.variables`.
            grads: One for each of the variables that the optimizer was built with.
            trainable_variables: Values of these variables.

        Returns:
            (the new values of the trainable variables, those of the optimizer's).

        Raises:
            ValueError: for an optimizer that is not built, or another number of values.

        Example:

        >>> import kerascnn as keras
        >>> weight, sgd = keras.Variable(1.0), keras.optimizers.SGD(0.5)
        >>> sgd.build([weight])
        >>> (after,), _ = sgd.stateless_apply([v.value for v in sgd.variables], [2.0], [10.0])
        >>> float(after), float(weight.value)
        (9.0, 1.0)
        """
        owner = f"optimizer '{self.name}'"
        if not self.built:
            raise ValueError(
                f"stateless_apply: {owner} has no variables yet that could be given values. Call "
                "`build(trainable_variables)`."
            )
        own, trained = self.variables, self._trainable_variables
        mapping = _pairs("trainable_variables", owner, trained, trainable_variables)
        mapping += _pairs("optimizer_variables", owner, own, optimizer_variables)
        with StatelessScope(mapping) as scope:
            self.apply(grads)
        values = scope.get_current_value
        return [values(v) for v in trained], [values(v) for v in own]


def _pairs(
    argument: str, owner: str, variables: Sequence[Variable], values: Iterable[Any]
) -> list[tuple[Variable, Any]]:
    values = list(values)
    if len(values) != len(variables):
        raise ValueError(
            f"`{argument}` must have a value for each of the {len(variables)} variables of "
            f"{owner}, in their order. Received {len(values)}."
        )
    return list(zip(variables, values, strict=True))

"""The base class of optimizers: slots for each weight, a learning rate, a count of steps."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kerascnn import _core, config, dtypes, naming, ops, serialization, tracing
from kerascnn.distribution import replicas
from kerascnn.distribution.sharded_state import Shards
from kerascnn.metrics.recording import current_recording
from kerascnn.ops import dispatch
from kerascnn.optimizers import clipping
from kerascnn.optimizers.conditional import assign_where
from kerascnn.optimizers.state import OptimizerState
from kerascnn.stateless import StatelessOptimizer
from kerascnn.variable import Variable


class Optimizer(OptimizerState, StatelessOptimizer):
    """Base class of optimizers.

    A subclass implements `build`, which makes its slots with `add_optimizer_variables`, and
    `update_step`, which assigns the new values of one weight and its slots. Both use `kerascnn.ops`
    only, for `fit` traces `apply` into the compiled step. The learning rate is a variable on the
    device: assigning to it takes effect with the next step and compiles nothing anew. A schedule is
    computed on the device from the count of steps, or, where it asks for the number (`if step <
    100:`), by Python for the steps that are about to run.

    Args:
        learning_rate: a float, a `schedules.LearningRateSchedule`, or a callable without arguments
            (which is called when a step is traced; before every step where it asks for values).
        weight_decay: takes `weight_decay * learning_rate` of each weight off it in each step.
        clipnorm: the greatest length that the gradient of one weight may have.
        clipvalue: the greatest size of a single element of a gradient.
        global_clipnorm: the greatest length of all gradients together.
        use_ema: whether to keep a moving average of the weights; at the end of `fit` the weights
            are set to it.
        ema_momentum: how slowly the average follows, from 0 to 1.
        ema_overwrite_frequency: sets the weights to the average every so many steps.
        loss_scale_factor: what the loss is multiplied by before gradients are taken, against
            underflow in half precision; the gradients are divided by it.
        gradient_accumulation_steps: changes the weights every so many steps, by the mean of the
            gradients since; at least 2.
        name: the optimizer's name; made from the class' name where it is `None`.

    Raises:
        ValueError: for arguments of a wrong form, or more than one kind of clipping.

    >>> class Signs(keras.optimizers.Optimizer):
    ...     def update_step(self, gradient, variable, learning_rate):
    ...         self.assign_sub(variable, learning_rate * keras.ops.sign(gradient))
    >>> weight = keras.Variable([1.0, 2.0])
    >>> Signs(learning_rate=0.5).apply([np.array([3.0, -5.0], "float32")], [weight])
    >>> weight.numpy()
    array([0.5, 2.5], dtype=float32)
    """

    # Whether gradients are averaged over the processes here: otherwise whoever calls does it.
    _averages_gradients = True

    def __init__(
        self,
        learning_rate: Any,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.pop("decay", None) is not None:
            warnings.warn(
                "`decay` is without effect; use a schedule of keras.optimizers.schedules.",
                stacklevel=3,
            )
        if kwargs:
            known = [k for k in inspect.signature(type(self)).parameters if k != "kwargs"]
            raise ValueError(
                f"{type(self).__name__} does not have the argument(s) {sorted(kwargs)}. "
                f"{serialization.did_you_mean(next(iter(kwargs)), known)}"
            )
        self.name = naming.auto_name(naming.to_snake_case(type(self).__name__))
        if name is not None:
            self.name = name
        self.weight_decay = weight_decay
        self.clipnorm = clipnorm
        self.global_clipnorm = global_clipnorm
        self.clipvalue = clipvalue
        self.use_ema = use_ema
        self.ema_momentum = ema_momentum
        self.ema_overwrite_frequency = ema_overwrite_frequency
        self.loss_scale_factor = loss_scale_factor
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self._check_arguments()
        if not (callable(learning_rate) or _is_float(learning_rate)):
            raise ValueError(
                f"{type(self).__name__} expects `learning_rate` to be a float, for example 0.01, a "
                "LearningRateSchedule, or a callable that returns one of them. Received: "
                f"learning_rate={learning_rate!r} of type {type(learning_rate).__name__}"
            )
        self._init_state(learning_rate)
        self._undecayed: tuple[frozenset[int], str] = (frozenset(), "")

    def _check_arguments(self) -> None:
        every = self.gradient_accumulation_steps
        if every and not every >= 2:
            raise ValueError(
                "`gradient_accumulation_steps` must be an integer from 2 on, or None. Received: "
                f"gradient_accumulation_steps={every!r}"
            )
        if self.use_ema:
            if not 0 <= self.ema_momentum <= 1:
                raise ValueError(
                    "`ema_momentum` must be from 0 to 1. Received: "
                    f"ema_momentum={self.ema_momentum!r}"
                )
            often = self.ema_overwrite_frequency
            if often and (not isinstance(often, int) or often < 1):
                raise ValueError(
                    "`ema_overwrite_frequency` must be an integer from 1 on, or None. Received: "
                    f"ema_overwrite_frequency={often!r}"
                )
        limits = {name: getattr(self, name) for name in ("clipnorm", "clipvalue")}
        limits["global_clipnorm"] = self.global_clipnorm
        if sum(limit is not None for limit in limits.values()) > 1:
            raise ValueError(
                "Only one of `clipnorm`, `clipvalue` and `global_clipnorm` can be set. Received: "
                f"{', '.join(f'{name}={limit}' for name, limit in limits.items())}"
            )

    # Steps ------------------------------------------------------------------------------------

    def apply(
        self, grads: Sequence[Any], trainable_variables: Sequence[Variable] | None = None
    ) -> None:
        """Takes one step.

        Args:
            grads: one gradient for each variable, of its shape; `None` where there is none.
            trainable_variables: the variables; those that the optimizer was built with by default.

        Raises:
            ValueError: where the numbers differ, for variables that the optimizer was not built
                with, or where no variable has a gradient.
        """
        grads = list(grads)
        if not grads:
            return
        if trainable_variables is None and not self.built:
            raise ValueError(
                f"'{self.name}' does not know yet which variables the gradients belong to. Pass "
                "them too, or call build(variables) first."
            )
        given = self._trainable_variables if trainable_variables is None else trainable_variables
        variables = list(given)
        if not self.built:
            self.build(variables)
        self._check_apply(grads, variables)
        grads, variables = self._filter_empty_gradients(grads, variables)
        # No gradient goes through an assignment, so tapes need not record what leads to one.
        with tracing.scope(self.name, phase="update"), _core.RecordingPause():
            self._apply(grads, variables)

    def _apply(self, grads: list[Any], variables: list[Variable]) -> None:
        if self.loss_scale_factor is not None:
            grads = [g / self.loss_scale_factor for g in grads]
        shards = self._current_shards()
        may_change = self._backend_apply_gradients(grads, variables)
        for variable in self._own(variables):
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable.value))
        may_change = may_change or any(v.constraint is not None for v in variables)
        if shards is not None and may_change:
            # Averages are taken over by all weights, also by those without gradients.
            overwrites = self.use_ema and self.ema_overwrite_frequency
            self._give_to_all(shards, self._trainable_variables if overwrites else variables)
        self._count_step()

    def _own(self, variables: Sequence[Variable]) -> list[Variable]:
        """Returns those of the weights that this process updates."""
        owned = self._is_own(variables)
        return [variable for variable, is_own in zip(variables, owned, strict=True) if is_own]

    def _is_own(self, variables: Sequence[Variable]) -> list[bool]:
        if self._shards is None:
            return [True] * len(variables)
        return [self._shards.is_own(self._get_variable_index(v)) for v in variables]

    def _give_to_all(self, shards: Shards, variables: Sequence[Variable]) -> None:
        """Gives all processes the weights that each has updated."""
        places = [self._get_variable_index(v) for v in variables]
        values = shards.from_owners([v.value for v in variables], places)
        for variable, value, is_own in zip(variables, values, self._is_own(variables), strict=True):
            if not is_own:
                variable.assign(value)

    def _give_own_to_all(self) -> None:
        """Gives all processes the own weights of each, where they share the state."""
        shards = self._current_shards()
        if shards is not None:
            self._give_to_all(shards, self._trainable_variables)

    def _mean_gradients(self, grads: Sequence[Any], variables: Sequence[Variable]) -> list[Any]:
        """Returns the means over the processes, for this one's weights where they share state."""
        shards = self._current_shards()
        if shards is None:
            return replicas.mean_gradients(grads)
        return shards.mean_gradients(grads, [self._get_variable_index(v) for v in variables])

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> Variable:
        """Takes one step with `(gradient, variable)` pairs; returns the count of steps."""
        grads, variables = zip(*grads_and_vars, strict=True)
        self.apply(grads, variables)
        return self._iterations

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        """Assigns the new values of one variable and its slots; subclasses implement it.

        Args:
            gradient: of the variable's shape and dtype.
            variable: the weight.
            learning_rate: of shape ().
        """
        raise NotImplementedError(f"{type(self).__name__} must implement update_step.")

    def assign(self, variable: Variable, value: Any) -> None:
        """Puts a new value into a variable."""
        variable.assign(value)

    def assign_add(self, variable: Variable, value: Any) -> None:
        """Adds to a variable."""
        variable.assign_add(value)

    def assign_sub(self, variable: Variable, value: Any) -> None:
        """Subtracts from a variable."""
        variable.assign_sub(value)

    def _backend_apply_gradients(self, grads: list[Any], variables: list[Variable]) -> bool:
        """Updates or gathers; tells whether weights may change."""
        is_due = None
        every = self.gradient_accumulation_steps
        if not self._averages_gradients:
            grads, variables = self._own_pairs(grads, variables)
        if every:
            sums = [self._accumulated_gradients[self._get_variable_index(v)] for v in variables]

            def update() -> None:
                means = [(g + s.value) / every for g, s in zip(grads, sums, strict=True)]
                self._update(means, variables)
                for total in self._accumulated_gradients:
                    total.assign(ops.zeros(total.shape, total.dtype))  # those elsewhere ignore it

            def gather() -> None:
                for g, total in zip(grads, sums, strict=True):
                    total.assign_add(g)

            is_due = self._is_due_on_host()
            if is_due is None:
                due = ops.equal(ops.mod(ops.add(self._steps(), 1), every), 0)
                assign_where(due, [*variables, *self._own_slots()], update, gather)
            elif is_due:
                update()
            else:
                gather()
        else:
            self._update(grads, variables)
        if self.use_ema:
            self._update_averages()
        overwrites = self.use_ema and bool(self.ema_overwrite_frequency)
        return is_due is not False or overwrites

    def _is_due_on_host(self) -> bool | None:
        """Tells whether the recorded step updates weights, None where only the device knows."""
        if not self._averages_gradients or not self._can_ask_host():
            return None
        recording = current_recording()
        if recording is None or recording.due_updates is None:
            return None
        self._steps()  # the device counts
        return recording.due_updates.is_due(self)

    def _update(self, grads: list[Any], variables: list[Variable]) -> None:
        if self._averages_gradients:
            grads = self._mean_gradients(grads, variables)
        grads, variables = self._own_pairs(grads, variables)
        grads = self._clip_gradients(grads, self._global_norm(grads, variables))
        self._apply_weight_decay(variables)
        self._backend_update_step(grads, variables, self.learning_rate)

    def _own_pairs(
        self, grads: Sequence[Any], variables: Sequence[Variable]
    ) -> tuple[list[Any], list[Variable]]:
        owned = self._is_own(variables)
        own = [g for g, is_own in zip(grads, owned, strict=True) if is_own]
        return own, self._own(variables)

    def _backend_update_step(
        self, grads: list[Any], variables: list[Variable], learning_rate: Any
    ) -> None:
        """Updates all variables; subclasses with one op for all variables override it."""
        for gradient, variable in zip(grads, variables, strict=True):
            rate = ops.cast(learning_rate, variable.dtype)
            self.update_step(gradient, variable, rate)

    def _next_step(self, dtype: str) -> Any:
        """Returns the number of the current update, from 1, as a floating type."""
        return ops.cast(self.iterations + 1, dtype)

    def _global_norm(self, grads: list[Any], variables: list[Variable]) -> Any:
        """Returns the length of all gradients where clipping needs it and processes share them."""
        if self._shards is None or not (self.global_clipnorm and self.global_clipnorm > 0):
            return None
        places = [self._get_variable_index(v) for v in variables]
        return self._shards.global_norm(grads, places)

    def _clip_gradients(self, grads: list[Any], global_norm: Any = None) -> list[Any]:
        if self.clipnorm and self.clipnorm > 0:
            return [clipping.clip_by_norm(g, self.clipnorm) for g in grads]
        if self.global_clipnorm and self.global_clipnorm > 0:
            return clipping.clip_by_global_norm(grads, self.global_clipnorm, global_norm)[0]
        if self.clipvalue and self.clipvalue > 0:
            limit = self.clipvalue
            return [clipping.clip_by_value(g, -limit, limit) for g in grads]
        return grads

    def scale_loss(self, loss: Any) -> Any:
        """The loss times `loss_scale_factor`: gradients are to be taken of this."""
        return loss if self.loss_scale_factor is None else loss * self.loss_scale_factor

    @property
    def trace_key(self) -> tuple:
        """Returns the constants of a compiled step: if they change, it is traced anew."""
        plain = (bool, int, float, str, type(None))
        own = tuple(
            (name, value)
            for name, value in vars(self).items()
            if isinstance(value, plain) and not name.startswith("_") and name != "built"
        )
        rate = self._learning_rate
        source = None if rate is None or isinstance(rate, Variable) else id(rate)
        shards = self._current_shards()
        share = None if shards is None else (shards.rank, shards.size)
        return (id(self), source, self._undecayed, share, *own)

    # Weight decay ------------------------------------------------------------------------------

    def exclude_from_weight_decay(
        self, var_list: Sequence[Variable] | None = None, var_names: Sequence[str] | None = None
    ) -> None:
        """Leaves variables out of the weight decay; replaces what was left out before.

        Args:
            var_list: the variables.
            var_names: regular expressions; a variable is left out where one occurs in its name.

        >>> adam = keras.optimizers.AdamW(weight_decay=0.01)
        >>> adam.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
        """
        known = frozenset(id(v) for v in var_list or ())
        self._undecayed = (known, "|".join(dict.fromkeys(var_names or ())))
        self._kept_alive = list(var_list or ())  # an id is only valid while its object exists

    def _use_weight_decay(self, variable: Variable) -> bool:
        known, pattern = self._undecayed
        return id(variable) not in known and not (pattern and re.search(pattern, variable.name))

    def _apply_weight_decay(self, variables: Sequence[Variable]) -> None:
        if self.weight_decay is None:
            return
        for variable in variables:
            if self._use_weight_decay(variable):
                self._decay(variable, self.weight_decay)

    def _decay(self, variable: Variable, weight_decay: float) -> None:
        rate = ops.cast(self.learning_rate, variable.dtype)
        variable.assign(variable.value - variable.value * weight_decay * rate)

    # Moving averages of the weights --------------------------------------------------------------

    def _update_averages(self) -> None:
        variables = self._trainable_variables
        started = ops.not_equal(self.iterations, 0)
        for variable, average in self._averages_of(variables):
            momentum = ops.cast(started, variable.dtype) * self.ema_momentum
            average.assign(momentum * average.value + (1.0 - momentum) * variable.value)
        if self.ema_overwrite_frequency:
            due = ops.equal(ops.mod(self.iterations + 1, self.ema_overwrite_frequency), 0)
            assign_where(due, variables, lambda: self._take_averages(variables))

    def _averages_of(self, variables: Sequence[Variable]) -> list[tuple[Variable, Variable]]:
        """Returns pairs of a weight that this process updates and its moving average."""
        pairs = zip(variables, self._model_variables_moving_average, strict=True)
        return [(variable, average) for variable, average in pairs if isinstance(average, Variable)]

    def _take_averages(self, variables: Sequence[Variable]) -> None:
        averages = self._model_variables_moving_average
        if len(variables) != len(averages):
            raise ValueError(
                f"'{self.name}' has moving averages of {len(averages)} variables, but there are "
                f"{len(variables)}. Make a new optimizer after changing what is trainable."
            )
        for variable, average in self._averages_of(variables):
            variable.assign(average.value)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        """Sets the weights to their moving averages where `use_ema` is set; `fit` ends with it."""
        if self.use_ema and self.built:
            self._take_averages(list(var_list))
            self._give_own_to_all()

    # Checks ------------------------------------------------------------------------------------

    def _check_apply(self, grads: Sequence[Any], variables: list[Variable]) -> None:
        if len(grads) != len(variables):
            raise ValueError(
                f"Expected one gradient for each of the {len(variables)} variables. Received "
                f"{len(grads)} gradients."
            )
        unknown = [v.path for v in variables if id(v) not in self._trainable_variables_indices]
        if unknown:
            raise ValueError(
                f"{self.name} was built for other variables than {', '.join(unknown)}. Make a new "
                "optimizer for a new model, and compile the model again after changing `trainable`."
            )

    def _filter_empty_gradients(
        self, grads: Sequence[Any], variables: Sequence[Variable]
    ) -> tuple[list[Any], list[Variable]]:
        pairs = [(g, v) for g, v in zip(grads, variables, strict=True) if g is not None]
        if not pairs:
            raise ValueError(
                "No gradient reaches any of the trainable variables: the loss does not depend on "
                f"{', '.join(v.path for v in variables)}."
            )
        missing = [v.path for g, v in zip(grads, variables, strict=True) if g is None]
        if missing:
            warnings.warn(
                f"The loss does not depend on {', '.join(missing)}: there are no gradients for "
                "them, and they stay as they are.",
                stacklevel=4,
            )
        converted = [dispatch.convert(g, v.dtype, like=v.core.value) for g, v in pairs]
        return converted, [v for _, v in pairs]

    # Configuration -----------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """The arguments that make another one like it; values of JSON.

        Returns:
            A dictionary, which `from_config` takes.
        """
        rate = self._learning_rate
        if rate is None:
            # The value is that of float32, since the configuration must not change in the first
            # step.
            rate = float(dtypes.numpy_dtype(config.floatx()).type(self._initial_learning_rate))
        elif isinstance(rate, Variable):
            rate = float(rate._held())
        else:
            rate = serialization.serialize_object(rate)
        return {
            "name": self.name,
            "learning_rate": rate,
            "weight_decay": self.weight_decay,
            "clipnorm": self.clipnorm,
            "global_clipnorm": self.global_clipnorm,
            "clipvalue": self.clipvalue,
            "use_ema": self.use_ema,
            "ema_momentum": self.ema_momentum,
            "ema_overwrite_frequency": self.ema_overwrite_frequency,
            "loss_scale_factor": self.loss_scale_factor,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Optimizer:
        """An optimizer of a configuration that `get_config` gave; without any state."""
        config = dict(config)
        if isinstance(config.get("learning_rate"), dict):
            config["learning_rate"] = serialization.deserialize_object(
                config["learning_rate"], custom_objects, "kerascnn.optimizers.schedules"
            )
        return cls(**config)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"


def _is_float(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) and not isinstance(value, bool)


def by_dtype(
    grads: Sequence[Any], variables: Sequence[Variable]
) -> Iterable[tuple[list[Any], list[Variable]]]:
    """Groups gradients and variables by dtype, for ops that update many at once."""
    groups: dict[str, tuple[list[Any], list[Variable]]] = {}
    for gradient, variable in zip(grads, variables, strict=True):
        some_grads, some_variables = groups.setdefault(variable.dtype, ([], []))
        some_grads.append(gradient)
        some_variables.append(variable)
    return groups.values()

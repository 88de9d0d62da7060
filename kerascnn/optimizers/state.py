"""The state of optimizers: the number of steps, the learning rate, slots for the weights."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kerascnn import config, device, dtypes, initializers, naming, ops, tracing
from kerascnn.distribution import replicas, sharded_state
from kerascnn.distribution.sharded_state import Elsewhere, Shards
from kerascnn.metrics.recording import current_recording
from kerascnn.optimizers.host_rates import HostRates
from kerascnn.optimizers.schedules import LearningRateSchedule
from kerascnn.symbolic.no_value import NoValueError
from kerascnn.variable import Variable, current_scope


class OptimizerState:
    """The part of `Optimizer` that knows its variables."""

    name: str
    use_ema: bool
    gradient_accumulation_steps: int | None
    _averages_gradients: bool

    def _init_state(self, learning_rate: Any) -> None:
        self.built = False
        # Variables are made with the rest of the state, or when they are requested, on the device
        # of the weights.
        self._initial_learning_rate = None if callable(learning_rate) else float(learning_rate)
        self._learning_rate: Any = learning_rate if callable(learning_rate) else None
        self._iterations: Any = None
        self._steps_on_host = 0
        self._reads_iterations = False
        self._variables: list[Variable | Elsewhere] = []
        self._shards: Shards | None = None  # who has what, where processes share the state
        # of which weight each slot is
        self._places_of_slots: dict[int, int] = {}
        self._gathered: list[np.ndarray | None] | None = None  # by other processes, for a file
        self._trainable_variables: list[Variable] = []
        self._trainable_variables_indices: dict[int, int] = {}
        self._model_variables_moving_average: list[Variable] = []
        self._accumulated_gradients: list[Variable] = []

    @property
    def learning_rate(self) -> Any:
        """The learning rate: a variable of shape () whose value can be assigned, or, with a
        schedule, what it gives for the steps taken so far."""
        if self._learning_rate is None:
            self._make_scalars(device.current())
        rate = self._learning_rate
        if isinstance(rate, Variable) or not callable(rate):
            return rate
        try:
            return rate(self._steps()) if isinstance(rate, LearningRateSchedule) else rate()
        except NoValueError:
            if not self._can_ask_host():
                raise
        return self._host_rates(rate).read()

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        if callable(value) and not isinstance(value, Variable):
            self._variables = [v for v in self._variables if v is not self._learning_rate]
            self._learning_rate = value
        elif callable(self._learning_rate) and not isinstance(self._learning_rate, Variable):
            raise TypeError(
                f"The learning rate of '{self.name}' comes from {self._learning_rate!r}, so no "
                "value can be set. Make the optimizer with a float to set it by hand."
            )
        else:
            self.learning_rate.assign(float(np.asarray(value)))

    def _can_ask_host(self) -> bool:
        """Tells whether the trace is that of a whole step, not of a function or loop in it."""
        recording, scope = current_recording(), current_scope()
        if recording is None or recording.trace is not tracing.current():
            return False
        count = self._iterations
        return scope is None or count is None or not scope.holds(count.core)

    def _host_rates(self, rate: Any) -> HostRates:
        """Returns the object that computes the rates of the recorded step."""
        recording = current_recording()
        assert recording is not None
        self._steps()  # the device counts
        if self not in recording.host_rates:
            recording.host_rates[self] = HostRates(self, rate)
        return recording.host_rates[self]

    @property
    def iterations(self) -> Any:
        """How many updates were made: an int64 variable of shape (), or with
        `gradient_accumulation_steps` the count of steps divided by it."""
        steps = self._steps()
        if self.gradient_accumulation_steps:
            return ops.floor_divide(steps, self.gradient_accumulation_steps)
        return steps

    def _steps(self) -> Variable:
        """The count of steps. A compiled step that asks for it keeps it on the device."""
        if self._iterations is None:
            self._make_scalars(device.current())
        if current_recording() is None:
            self._bring_count_to_device()
        elif not self._reads_iterations:
            self._reads_iterations = True
            self._bring_count_to_device()
        return self._iterations

    def _bring_count_to_device(self) -> None:
        steps, self._steps_on_host = self._steps_on_host, 0
        if steps:
            with tracing.suspended():
                self._iterations.assign(int(self._iterations.numpy()) + steps)

    @property
    def variables(self) -> list[Variable]:
        """The count of steps, the learning rate (where it is a number), then the slots.

        Where processes share the state, the slots are those of this one.
        """
        return [v for v in self._whole_state() if isinstance(v, Variable)]

    def _whole_state(self) -> list[Variable | Elsewhere]:
        """Returns the variables with what stands for those that other processes have."""
        if self._iterations is None:
            self._make_scalars(device.current())
        if current_recording() is None:
            self._bring_count_to_device()
        return list(self._variables)

    def _make_scalars(self, device_name: str) -> None:
        """Makes the scalars, or moves them to the device of the weights."""
        if self._iterations is not None and self._iterations.device == device_name:
            return
        old = [v for v in (self._iterations, self._learning_rate) if isinstance(v, Variable)]
        rest = [v for v in self._variables if all(v is not o for o in old)]
        steps = 0 if self._iterations is None else int(self._iterations._held())
        with naming.absolute_scope((self.name,)):
            self._iterations = _scalar(steps, "int64", "iteration", device_name)
            made = [self._iterations]
            if self._learning_rate is None or isinstance(self._learning_rate, Variable):
                rate = self._initial_learning_rate
                if self._learning_rate is not None:
                    rate = float(self._learning_rate._held())
                self._learning_rate = _scalar(rate, config.floatx(), "learning_rate", device_name)
                made.append(self._learning_rate)
        self._variables = [*made, *rest]

    def build(self, variables: Sequence[Variable]) -> None:
        """Makes the state for `variables`.

        Subclasses return at once where `built` is true, call this, and then add their slots with
        `add_optimizer_variables`.
        """
        variables = list(variables)
        self._make_scalars(variables[0].device if variables else device.current())
        self._trainable_variables = variables
        self._trainable_variables_indices = {id(v): i for i, v in enumerate(variables)}
        shards = self._shards = sharded_state.shards_for(variables)
        if self.use_ema:
            self._model_variables_moving_average = self.add_optimizer_variables(
                variables, "average"
            )
        if self.gradient_accumulation_steps:
            if self._averages_gradients:
                self._shards = None  # each process adds up its own gradients, of all weights
            self._accumulated_gradients = self.add_optimizer_variables(
                variables, "gradient_accumulator"
            )
            self._shards = shards
        self.built = True

    def add_variable(
        self,
        shape: Sequence[int],
        initializer: Any = "zeros",
        dtype: Any = None,
        aggregation: str | None = "none",
        layout: Any = None,
        name: str | None = None,
    ) -> Variable:
        """A variable of the optimizer's own, on the device of the weights.

        Args:
            shape: Its shape.
            initializer: Its first values, a name or an initializer.
            dtype: By default `floatx`.
            aggregation: Kept for Keras' signature.
            layout: Only None.
            name: By default variable, variable_1, ...
        """
        if self._shards is not None:
            self._check_shared(name, shape)
        return self._add_slot(shape, initializer, dtype, name, aggregation=aggregation)

    def _add_slot(
        self,
        shape: Sequence[int],
        initializer: Any,
        dtype: Any,
        name: str | None,
        reference: Variable | None = None,
        aggregation: str | None = "none",
    ) -> Any:
        """Makes a variable, or what stands for it where another process has the reference."""
        place = self._trainable_variables_indices.get(id(reference))
        if place is not None and self._shards is not None and not self._shards.is_own(place):
            with naming.absolute_scope((self.name,)):
                path = "/".join((*naming.current_scopes(), name or naming.auto_name("variable")))
            owner = self._shards.owners[place]
            kind = dtypes.standardize_dtype(dtype or config.floatx())
            elsewhere = Elsewhere(path, shape, kind, owner)
            self._variables.append(elsewhere)
            return elsewhere
        where = self._iterations.device if self._iterations is not None else device.current()
        with naming.absolute_scope((self.name,)), tracing.suspended():
            variable = Variable(
                initializers.get(initializer),
                shape=tuple(shape),
                dtype=dtype,
                trainable=False,
                aggregation=aggregation,
                name=name,
                device_name=where,
            )
        self._track_variable(variable)
        if place is not None:
            self._places_of_slots[id(variable)] = place
        return variable

    def add_variable_from_reference(
        self, reference_variable: Variable, name: str | None = None, initializer: Any = "zeros"
    ) -> Variable:
        """A slot of a weight's shape and dtype, named after it and `name`."""
        return self._add_slot(
            reference_variable.shape,
            initializer,
            reference_variable.dtype,
            f"{reference_variable.path.replace('/', '_')}_{name or 'var'}",
            reference_variable,
        )

    def add_optimizer_variables(
        self, trainable_variables: Sequence[Variable], name: Any, initializer: Any = "zeros"
    ) -> Any:
        """Slots for all weights: a list, or for a list of names one list for each.

        Raises:
            ValueError: where there are not as many initializers as names.
        """
        names = [name] if isinstance(name, str) else list(name)
        many = isinstance(initializer, (list, tuple))
        first_values = list(initializer) if many else [initializer] * len(names)
        if len(first_values) != len(names):
            raise ValueError(
                f"There have to be as many initializers as names. Received: name={name!r}, "
                f"initializer={initializer!r}"
            )
        slots: tuple[list[Variable], ...] = tuple([] for _ in names)
        for variable in trainable_variables:
            for slot, slot_name, first in zip(slots, names, first_values, strict=True):
                slot.append(self.add_variable_from_reference(variable, slot_name, first))
        return slots[0] if isinstance(name, str) else slots

    def _track_variable(self, variable: Variable) -> None:
        self._variables.append(variable)

    def _get_variable_index(self, variable: Variable) -> int:
        return self._trainable_variables_indices[id(variable)]

    # The count of steps -----------------------------------------------------------------------

    def _count_step(self) -> None:
        """Counts a step, on the device if the compiled step needs the number, else on the host."""
        recording, scope = current_recording(), current_scope()
        if scope is not None and scope.holds(self._iterations.core):
            self._iterations.assign_add(1)
        elif recording is None or recording.results_on_device or self._reads_iterations:
            self._steps().assign_add(1)
            if recording is not None and self in recording.host_rates:
                recording.host_rates[self].note_update()
        else:
            recording.each_step(self._add_steps)

    def _add_steps(self, steps: int) -> None:
        self._steps_on_host += steps
        if self._reads_iterations:
            self._bring_count_to_device()

    # Several processes ------------------------------------------------------------------------

    def _check_shared(self, name: str | None, shape: Sequence[int]) -> None:
        """Raises ValueError for a variable that is not known to be of a weight, nor of none."""
        if tuple(shape):
            raise ValueError(
                f"{type(self).__name__} has a variable '{name}' of shape {tuple(shape)} by "
                "add_variable, which does not say of which weight it is. With "
                "DataParallel(shard_optimizer_state=True) make those of weights by "
                "add_variable_from_reference or add_optimizer_variables, or leave the state whole."
            )

    def _current_shards(self) -> Shards | None:
        """Returns who has what; gives away the slots of others if that was asked for since.

        Raises:
            RuntimeError: where the state was shared among other processes than there are now.
            ValueError: for state that can't be shared.
        """
        if self._shards is not None:
            self._shards.check(self.name)
        elif self.built and self._places_of_slots:
            shards = sharded_state.shards_for(self._trainable_variables)
            if shards is not None:
                self._give_away(shards)
                self._shards = shards
        return self._shards

    def _give_away(self, shards: Shards) -> None:
        """Keeps those of all slots that are of this process' weights."""
        local = {id(v) for v in self._local_sums()}
        stand_ins: dict[int, Elsewhere] = {}
        for variable in self._variables:
            place = self._places_of_slots.get(id(variable))
            if place is None:
                self._check_shared(variable.name, variable.shape)
            elif id(variable) not in local and not shards.is_own(place):
                owner = shards.owners[place]
                stand_ins[id(variable)] = Elsewhere(
                    variable.path, variable.shape, variable.dtype, owner
                )
        for value in vars(self).values():
            if isinstance(value, list):
                value[:] = [stand_ins.get(id(item), item) for item in value]
        for gone in stand_ins:
            del self._places_of_slots[gone]

    def _own_slots(self) -> list[Variable]:
        """Returns the state that this process has, as variables that a step may assign to."""
        return [v for v in self._variables if isinstance(v, Variable)]

    def _owned_state(self) -> list[tuple[Variable | Elsewhere, int | None]]:
        """Returns the whole state in its order, with the process that has each part.

        It is None for what all have, and for sums of gradients of which each has its own.
        """
        local = {id(v) for v in self._local_sums()}

        def owner_of(v: Variable | Elsewhere) -> int | None:
            if isinstance(v, Elsewhere):
                return v.owner
            place = self._places_of_slots.get(id(v))
            if self._shards is None or place is None or id(v) in local:
                return None
            return self._shards.owners[place]

        return [(v, owner_of(v)) for v in self._whole_state()]

    def _local_sums(self) -> list[Variable]:
        """Returns the sums of gradients that each process has of its own."""
        return self._accumulated_gradients if self._averages_gradients else []

    def _sums_under_way(self) -> list[Variable]:
        """Returns those of them that are not zero, because an update is not due yet."""
        every = self.gradient_accumulation_steps
        if not every or int(self._steps().numpy()) % every == 0:
            return []
        return self._local_sums()

    # Saving ------------------------------------------------------------------------------------

    def _values_for_files(self) -> list[np.ndarray]:
        """Returns the values of the whole state; all processes that share it call this."""
        values = self._gathered
        if values is None:
            values = sharded_state.values_of_all(self._owned_state())
        assert all(value is not None for value in values), "only the first process has them all"
        return values  # type: ignore[return-value]

    @contextlib.contextmanager
    def _gathered_in_first(self) -> Iterator[None]:
        """A block in which the first process may save; all processes enter it together.

        It then has the state of all. Gradients that are gathered are the means of the processes'.
        """
        values = sharded_state.values_of_all(self._owned_state(), keeps=replicas.is_first())
        places = {id(v): i for i, v in enumerate(self._whole_state())}
        under_way = self._sums_under_way()
        for variable, mean in zip(under_way, sharded_state.means_of(under_way), strict=True):
            values[places[id(variable)]] = mean
        self._gathered = values
        try:
            with contextlib.ExitStack() as inner:
                for optimizer in self._inner():
                    inner.enter_context(optimizer._gathered_in_first())
                yield
        finally:
            self._gathered = None

    def _inner(self) -> list[Any]:
        """Returns the optimizers that this one holds."""
        return []

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Gives all variables new values, in the order of `variables`.

        Raises:
            ValueError: before `build`, or for an array of another shape.
        """
        if not self.built:
            raise ValueError(
                f"'{self.name}' has no state yet. Call build(trainable_variables) before "
                "set_weights."
            )
        arrays = [np.asarray(w) for w in weights]
        for variable, array in zip(self.variables, arrays, strict=False):
            if variable.shape != array.shape:
                raise ValueError(
                    f"The optimizer's variable '{variable.path}' has shape {variable.shape}, but "
                    f"the array given for it has shape {array.shape}."
                )
        for variable, array in zip(self.variables, arrays, strict=False):
            variable.assign(array)

    def save_own_variables(self, store: Any) -> None:
        """Puts the values of all variables into a mapping, under "0", "1", ...

        Where processes share the state, all of them have to call it, since each has a part.
        """
        for i, value in enumerate(self._values_for_files()):
            store[str(i)] = value

    def load_own_variables(self, store: Any) -> None:
        """Takes the values of all variables from a mapping that `save_own_variables` filled.

        Where it has another number of them, it warns and takes none.
        """
        own = self._whole_state()
        if len(store.keys()) != len(own):
            hint = "" if self.built else " It may not be built yet."
            warnings.warn(
                f"The state of optimizer '{self.name}' was not loaded: it has {len(own)} "
                f"variables, the saved one {len(store.keys())}.{hint}",
                stacklevel=2,
            )
            return
        for i, variable in enumerate(own):
            variable.assign(np.asarray(store[str(i)]))  # what is elsewhere ignores it


def _scalar(value: Any, dtype: str, name: str, device_name: str) -> Variable:
    return Variable(value, dtype=dtype, trainable=False, name=name, device_name=device_name)

"""The base class of optimizers: slots beside each weight, a learning rate, a count of steps."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn import config, device, naming, tracing
from kerascnn.metrics.recording import current_recording
from kerascnn.ops import dispatch
from kerascnn.variable import Variable


class Optimizer:
    """Base class of optimizers.

    A subclass implements `build`, which makes its slots, and `update`, which emits the new weights
    and slots for all variables at once. The learning rate is a variable on the device: assigning to
    it takes effect with the next step and compiles nothing anew.

    Args:
        learning_rate: a float.
        name: the optimizer's name; made from the class' name where it is `None`.

    Raises:
        ValueError: where `learning_rate` is not a float.
    """

    def __init__(self, learning_rate: float, name: str | None = None):
        self.name = name or naming.auto_name(naming.to_snake_case(type(self).__name__))
        if isinstance(learning_rate, bool) or not isinstance(learning_rate, (float, np.floating)):
            raise ValueError(
                f"{type(self).__name__} expects `learning_rate` to be a float, for example 0.01. "
                f"Received: learning_rate={learning_rate!r} of type {type(learning_rate).__name__}"
            )
        self._initial_learning_rate = float(learning_rate)
        self._learning_rate: Any = None  # variables, made with the state or when asked for
        self._iterations: Any = None
        self._steps_on_host = 0
        self._slots: list[Variable] = []
        self._trainable_variables: list[Variable] = []
        self.built = False

    # State ------------------------------------------------------------------------------------

    @property
    def learning_rate(self) -> Variable:
        """The learning rate, a variable of shape (); assign a number to change it."""
        if self._learning_rate is None:
            self._make_scalars(device.current())
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.learning_rate.assign(float(np.asarray(value)))

    @property
    def iterations(self) -> Variable:
        """How many steps were taken, an int64 variable of shape ()."""
        if self._iterations is None:
            self._make_scalars(device.current())
        if self._steps_on_host and current_recording() is None:
            steps, self._steps_on_host = self._steps_on_host, 0
            self._iterations.assign(int(self._iterations.numpy()) + steps)
        return self._iterations

    @property
    def variables(self) -> list[Variable]:
        """The count of steps, the learning rate, then the slots."""
        return [self.iterations, self.learning_rate, *self._slots]

    def _make_scalars(self, device_name: str) -> None:
        """Makes the scalars, or moves them to the device that the weights turn out to be on."""
        iterations, rate = 0, self._initial_learning_rate
        if self._iterations is not None:
            if self._iterations.device == device_name:
                return
            iterations, rate = int(self._iterations.numpy()), float(self._learning_rate.numpy())
        with naming.absolute_scope((self.name,)):
            self._iterations = Variable(
                iterations,
                dtype="int64",
                trainable=False,
                name="iteration",
                device_name=device_name,
            )
            self._learning_rate = Variable(
                rate,
                dtype=config.floatx(),
                trainable=False,
                name="learning_rate",
                device_name=device_name,
            )

    def build(self, variables: Sequence[Variable]) -> None:
        """Makes the state for `variables`; a second call does nothing.

        Subclasses call this first and then add their slots with `add_optimizer_variables`.
        """
        variables = list(variables)
        self._trainable_variables = variables
        self._make_scalars(variables[0].device if variables else device.current())
        self.built = True

    def add_optimizer_variables(self, variables: Sequence[Variable], name: str) -> list[Variable]:
        """A slot of zeros for each variable, of its shape, dtype and device."""
        slots = []
        with naming.absolute_scope((self.name,)), tracing.suspended():
            for variable in variables:
                slot = Variable(
                    np.zeros(variable.shape),
                    dtype=variable.dtype,
                    trainable=False,
                    name=f"{variable.path.replace('/', '_')}_{name}",
                    device_name=variable.device,
                )
                slots.append(slot)
        self._slots.extend(slots)
        return slots

    # Steps ------------------------------------------------------------------------------------

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Variable] | None = None):
        """Takes one step with the given gradients.

        Args:
            grads: one gradient for each variable, of its shape; `None` where there is none.
            trainable_variables: the variables; those that the optimizer was built with by default.

        Raises:
            ValueError: where the numbers differ, for variables that the optimizer was not built
                with, or where no variable has a gradient.
        """
        variables = list(trainable_variables or self._trainable_variables)
        if not self.built:
            self.build(variables)
        self._check_apply(grads, variables)
        pairs = [(g, v) for g, v in zip(grads, variables, strict=True) if g is not None]
        if not pairs:
            raise ValueError(
                "No gradient reaches any of the trainable variables: the loss does not depend on "
                f"{', '.join(v.path for v in variables)}."
            )
        converted = [dispatch.convert(g, v.dtype, like=v.core.value) for g, v in pairs]
        self.update(converted, [v for _, v in pairs])
        self._count_step()

    def apply_gradients(self, grads_and_vars: Sequence[tuple[Any, Variable]]) -> None:
        """Takes one step with `(gradient, variable)` pairs."""
        grads, variables = zip(*grads_and_vars, strict=True)
        self.apply(grads, variables)

    def update(self, grads: list[Any], variables: list[Variable]) -> None:
        """Emits the new values of `variables` and of their slots."""
        raise NotImplementedError(f"{type(self).__name__} must implement update.")

    # Whether the compiled step reads the number of steps taken; else it is counted on the host.
    _reads_iterations = False

    def _count_step(self) -> None:
        recording = current_recording()
        if recording is None or recording.results_on_device or self._reads_iterations:
            self.iterations.assign_add(1)
        else:
            recording.each_step(self._add_steps)

    def _add_steps(self, steps: int) -> None:
        self._steps_on_host += steps

    def _check_apply(self, grads: Sequence[Any], variables: list[Variable]) -> None:
        if len(grads) != len(variables):
            raise ValueError(
                f"Expected one gradient for each of the {len(variables)} variables. Received "
                f"{len(grads)} gradients."
            )
        known = {id(v) for v in self._trainable_variables}
        unknown = [v.path for v in variables if id(v) not in known]
        if unknown:
            raise ValueError(
                f"{self.name} was built for other variables than {', '.join(unknown)}. Make a new "
                "optimizer for a new model, and compile the model again after changing `trainable`."
            )

    def _index_of(self, variables: list[Variable]) -> list[int]:
        places = {id(v): i for i, v in enumerate(self._trainable_variables)}
        return [places[id(v)] for v in variables]

    def get_config(self) -> dict:
        rate = self._initial_learning_rate
        if self._learning_rate is not None:
            rate = float(self._learning_rate.numpy())
        return {"name": self.name, "learning_rate": rate}

    @classmethod
    def from_config(cls, config: dict) -> "Optimizer":
        return cls(**config)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"

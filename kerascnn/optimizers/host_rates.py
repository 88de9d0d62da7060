"""Learning rates that only Python can compute: a table that is filled right before steps run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kerascnn import _core, ops
from kerascnn.device import device as on_device
from kerascnn.optimizers.schedules import LearningRateSchedule
from kerascnn.variable import Variable, in_place

if TYPE_CHECKING:
    from kerascnn.optimizers.state import OptimizerState

_LENGTH = 1024  # the rates that a program can use before Python runs again


class HostRates:
    """The rates of the steps that one program is about to run, on the device.

    Recording a schedule fails where it needs the number of the step (`if step < 100:`). The program
    then reads the rate of step `i` at place `i % 1024` of a table, and `fill` has Python compute
    the rates of the coming steps each time before the program runs. So what callbacks change in a
    schedule counts from the next run on.

    Args:
        optimizer: whose steps are counted, on the device.
        rate: the schedule, or a callable without arguments, which can be asked for the rate of the
            next step only.
    """

    def __init__(self, optimizer: OptimizerState, rate: Any):
        self._optimizer = optimizer
        self._rate = rate
        self._device: str = optimizer._iterations.device
        weights = {variable.dtype for variable in optimizer._trainable_variables}
        dtype = "float64" if "float64" in weights else "float32"
        # A place that was never filled must not be taken for a rate.
        unknown = np.full(_LENGTH, np.nan, dtype)
        with in_place():
            self._table = self._variable(unknown, "learning_rates")
            self._step = self._variable(np.int64(0), "step")
        self._updates = 0  # updates in the recorded step so far
        self._reach = 0  # updates before the last place in the step that reads the rate

    def _variable(self, value: Any, name: str) -> Variable:
        return Variable(value, trainable=False, name=name, device_name=self._device)

    def read(self) -> Any:
        """Returns the rate for the number of steps at this point of the trace."""
        self._reach = self._updates
        place = ops.mod(self._optimizer._iterations, _LENGTH)
        return ops.take(self._table, place, axis=0)

    def note_update(self) -> None:
        """Counts an update in the recorded step."""
        self._updates += 1

    def fill(self, steps: int) -> int:
        """Computes the rates of the next steps; how many of them can run now, at least one.

        Where the schedule fails, the steps before run first: then it is asked again.
        """
        if self._updates:
            steps = min(steps, (_LENGTH - 1 - self._reach) // self._updates + 1)
            if not isinstance(self._rate, LearningRateSchedule):
                steps = 1
        needed = (steps - 1) * self._updates + self._reach + 1
        with in_place(), on_device(self._device), _core.RecordingPause():
            first = int(self._optimizer._iterations._held())
            table = self._table._held()
            for computed in range(needed):
                try:
                    table[(first + computed) % _LENGTH] = self._rate_of(first + computed)
                except Exception:
                    if computed <= self._reach:
                        raise
                    steps = (computed - 1 - self._reach) // self._updates + 1
                    break
            self._table.assign(table)
        return steps

    def fill_with_next(self) -> None:
        """Gives all further steps the rate of the next one."""
        with in_place(), on_device(self._device), _core.RecordingPause():
            rate = self._rate_of(int(self._optimizer._iterations._held()))
            self._table.assign(np.full_like(self._table._held(), rate))

    def _rate_of(self, count: int) -> float:
        if not isinstance(self._rate, LearningRateSchedule):
            return np.asarray(self._rate()).item()
        self._step.assign(count)
        return np.asarray(self._rate(self._step)).item()

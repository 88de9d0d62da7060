"""What a traced step does on the host: effects that grow by a fixed amount with each step.

A metric without sample weights counts as many samples in each step as the batch has. That number
is known when the step is traced, so it is kept on the host and costs nothing on the device; whoever
runs a program for `k` steps then calls `run_effects(k)`. What the host has to compute before steps
run, such as learning rates that only Python knows, `prepare(k)` does.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_current: ContextVar["StepRecording | None"] = ContextVar("step_recording", default=None)


class StepRecording:
    """Collects host effects while a step is traced.

    With `results_on_device` a metric's result is needed inside of the step (a `train_step` of the
    user's own returns it), so counts have to live on the device as well.
    """

    def __init__(self, results_on_device: bool = False):
        self.results_on_device = results_on_device
        self.notes_finite_loss = False
        self.trace: Any = None  # the trace of the step
        self.host_rates: dict[Any, Any] = {}  # the `HostRates` of each optimizer
        # the `DueUpdates` that the host decides, where several processes train
        self.due_updates: Any = None
        self._effects: list[Callable[[int], None]] = []

    def each_step(self, effect: Callable[[int], None]) -> None:
        """Makes `effect(k)` run after every `k` steps."""
        self._effects.append(effect)

    def prepare(self, steps: int) -> int:
        """Prepares for up to `steps` steps; returns how many can run before it is called again."""
        for rates in self.host_rates.values():
            steps = min(steps, rates.fill(steps))
        return steps

    def prepare_alike(self) -> None:
        """Prepares for any number of steps like the next one, to measure their time."""
        for rates in self.host_rates.values():
            rates.fill_with_next()

    def run_effects(self, steps: int) -> None:
        for effect in self._effects:
            effect(steps)


@contextmanager
def record_step(recording: StepRecording) -> Iterator[StepRecording]:
    token = _current.set(recording)
    try:
        yield recording
    finally:
        _current.reset(token)


def current_recording() -> StepRecording | None:
    return _current.get()

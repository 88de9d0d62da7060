"""Profiles the kernels and the memory of a model's training step without changing the model."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from kerascnn import _core
from kerascnn.distribution import replicas
from kerascnn.profiler.events import Recording, busy_shares
from kerascnn.profiler.memory import StepMemory, values_at_peak
from kerascnn.profiler.profile import Profile
from kerascnn.profiler.trace import memory_of, start, stop
from kerascnn.training.data import ArrayData, check_positive_int
from kerascnn.training.device_arrays import tensor_of
from kerascnn.training.sources import as_data
from kerascnn.training.steps import TRAIN, CompiledStep, compile_step, describe_source

# A run has this many steps, since `fit` enqueues many at a time, or fewer if they take long.
_STEPS = 64
_SECONDS_OF_RUN = 0.25
# Rounds with and without the profiler alternate, so that both see the machine in the same state. On
# a CPU there are many short ones, some of which run without other work in between. On a GPU each
# round captures graphs, which takes longer than running them.
_ROUNDS = {"cpu": 50, "cuda": 5}
_SECONDS_OF_ROUND = {"cpu": 0.003, "cuda": 0.03}
_LEAST_ROUNDS = 5
_SECONDS_OF_ROUNDS = 2.0  # all rounds together, unless the fewest take longer
_MAX_EVENTS = 1_000_000


def profile_training(
    model: Any, x: Any, y: Any, sample_weight: Any, batch_size: int | None, steps: int | None
) -> Profile:
    """See `Model.profile`."""
    data = _arrays(model, x, y, sample_weight, "profile", ", or use keras.profiler.trace")
    for name, value in (("batch_size", batch_size), ("steps", steps)):
        if value is not None:
            check_positive_int(name, value)
    batch_size = min(batch_size or 32, data.num_samples)
    runs = _Runs(model, data, batch_size, steps)
    result = Profile()
    result._prefix = model.name
    with runs.leaving_the_model():
        runs.prepare()
        runs.choose_length(steps)
        plain, recordings = [], []
        for _ in range(runs.rounds):
            plain.append(runs.seconds_of_step())
            recordings.append(runs.recorded())
    # The least time counts, since other work on a machine only adds to it.
    result._take(min(recordings, key=lambda recording: busy_shares(recording.events).sum()))
    result.steps = runs.steps * runs.repeats
    result.step_us = min(plain) * 1e6
    result.memory = memory_of(runs.device) | runs.memory()
    return result


def _arrays(
    model: Any, x: Any, y: Any, sample_weight: Any, method: str, instead: str = ""
) -> ArrayData:
    """The data of a method that is about compiled steps over arrays."""
    if model.run_eagerly:
        raise ValueError(
            f"{method} is about compiled steps, and this model was compiled with run_eagerly=True. "
            f"Compile it without{instead}."
        )
    data = as_data(x, y, sample_weight, prepare=model._host_preparation())
    if not isinstance(data, ArrayData):
        raise ValueError(f"{method} needs arrays, not a {data.name}: pass some batches of it.")
    return data


def plan_step_memory(
    model: Any, x: Any, y: Any, sample_weight: Any, batch_size: int | None
) -> StepMemory:
    """See `Model.step_memory`."""
    data = _arrays(model, x, y, sample_weight, "step_memory")
    if batch_size is None:
        batch_size = min(32, data.num_samples)
    check_positive_int("batch_size", batch_size)
    with model._finding_parts_once():
        state = model._prepare(TRAIN, data)
        source = describe_source(
            data.packed, data.unique_arrays(), batch_size, batch_size, True, batch_size
        )
        with replicas.on_first_device():
            program = compile_step(model, TRAIN, source, state, allocates=False).program
    stats = program.stats()
    names = ("arena_bytes", "constant_bytes", "output_bytes")
    return StepMemory(
        batch_size=batch_size,
        weights=sum(variable.value.nbytes for variable in program.states),
        intermediate=sum(stats[name] for name in names),
        at_peak=values_at_peak(program.memory()),
    )


class _Runs:
    """Runs the step as `fit` does: many at a time, over data that is on the device."""

    def __init__(self, model: Any, data: ArrayData, batch_size: int, steps: int | None):
        arrays = data.unique_arrays()
        rows = (steps or _STEPS) * batch_size
        with model._finding_parts_once():
            state = model._prepare(TRAIN, data)
            source = describe_source(data.packed, arrays, batch_size, rows, True)
            step = model._compiled_step(TRAIN, source, state)
            assert isinstance(step, CompiledStep)
        model._check_labels(data)
        self.device: str = state.device
        self.steps = steps or _STEPS
        self.repeats = 1
        self.rounds = _LEAST_ROUNDS
        self._state = state
        self._program = step.program
        self.prepare = step.prepare_alike
        whole = data.num_samples // batch_size * batch_size
        order = np.arange(rows, dtype=np.int32) % whole
        self._inputs = [tensor_of(array, self.device) for array in arrays]
        self._inputs.append(_core.from_numpy(order, self.device))

    def choose_length(self, steps: int | None) -> None:
        """Chooses the steps of a run and the runs of a round so that both take a sensible time."""
        self.steps = 1
        self.run()
        self.run()
        seconds = self.seconds_of_step()
        kind = self.device.partition(":")[0]
        length = _SECONDS_OF_ROUND[kind] if kind == "cpu" else _SECONDS_OF_RUN
        self.steps = steps or max(1, min(_STEPS, int(length / seconds)))
        self.run()  # on a GPU, captures the graph of so many steps
        seconds = self.seconds_of_step() * self.steps
        self.repeats = max(1, int(_SECONDS_OF_ROUND[kind] / seconds))
        most = int(_SECONDS_OF_ROUNDS / (2 * seconds * self.repeats))
        self.rounds = max(_LEAST_ROUNDS, min(_ROUNDS[kind], most))

    def run(self) -> None:
        for _ in range(self.repeats):
            self._state.step.clear()
            self._program.run(self._inputs, self.steps)

    def seconds_of_step(self) -> float:
        _core.synchronize(self.device)
        begin = time.perf_counter()
        self.run()
        _core.synchronize(self.device)
        return (time.perf_counter() - begin) / (self.steps * self.repeats)

    def recorded(self) -> Recording:
        """Returns the events of a run without those of its preparation."""
        start(self.device, _MAX_EVENTS)
        try:
            if self.device != "cpu":
                self.run()  # captures a graph whose kernels are known
                _core.synchronize(self.device)
            begin = _core.profile_clock()
            self.run()
        finally:
            record = stop(self.device)
        return Recording.take(record, begin - record["start"])

    def memory(self) -> dict[str, int]:
        """Returns what the step needs."""
        stats = self._program.stats()
        return {
            "weights": sum(variable.value.nbytes for variable in self._program.states),
            "intermediate": sum(
                stats[name] for name in ("arena_bytes", "constant_bytes", "output_bytes")
            ),
        }

    @contextlib.contextmanager
    def leaving_the_model(self) -> Iterator[None]:
        """A block after which all variables have their old values, to the bit."""
        variables = self._program.states
        before = [np.array(variable.value.numpy()) for variable in variables]
        try:
            yield
        finally:
            for variable, value in zip(variables, before, strict=True):
                variable.assign(_core.from_numpy(value, self.device))
            _core.synchronize(self.device)

"""Steps that Python runs at once, batch by batch: `run_eagerly=True`.

An `EagerStep` stands where a `CompiledStep` does, so that feeds, loops, logs and callbacks are the
same for both. It draws the random numbers of a compiled step too; what differs is rounding, and the
time that it takes.
"""

from __future__ import annotations

import contextlib
import contextvars
from typing import TYPE_CHECKING, Any

from kerascnn import _core, ops, tracing, trees
from kerascnn.device import device as on_device
from kerascnn.distribution import replicas
from kerascnn.ops import dispatch
from kerascnn.training.device_state import StepState
from kerascnn.training.step_gradients import StepGradients
from kerascnn.training.steps import (
    PREDICT,
    TEST,
    TRAIN,
    BatchSource,
    Step,
    checked_results,
    keeping_metrics,
    results_structure,
)

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery

_METHODS = {TRAIN: "train_step", TEST: "test_step", PREDICT: "predict_step"}
_current: contextvars.ContextVar[EagerStep | None] = contextvars.ContextVar(
    "eager_step", default=None
)


def current_step() -> EagerStep | None:
    """Returns the step that runs now, or None."""
    return _current.get()


class EagerStep(Step):
    """A model's step of one kind, run by Python for each batch.

    Args:
        model: the model.
        kind: `"train"`, `"test"` or `"predict"`.
        source: where its batches come from.
        state: the counters that steps read and write.
    """

    runs_at_once = True

    def __init__(self, model: StepMachinery, kind: str, source: BatchSource, state: StepState):
        super().__init__()
        self._model = model
        self._kind = kind
        self._source = source
        self._state = state
        self._leaves: list[Any] = []  # the leaves of the last step's result
        self._ran = False
        # Otherwise the metrics are read on the host, as after a compiled step.
        self.returns_results = kind == PREDICT or model._returns_own_logs(kind)
        self.notes_finite_loss = False

    def run(self, inputs: list[Any], steps: int, later: bool = False) -> None:
        """Runs steps; `later` allows them to wait."""
        for _ in range(steps):
            self._run_one(inputs)

    def release_inputs(self) -> None:
        """Does nothing: a step keeps no batch."""

    def _tensors(self) -> list[Any]:
        return self._leaves

    def _run_one(self, inputs: list[Any]) -> None:
        model, state = self._model, self._state
        method = getattr(model, _METHODS[self._kind])
        token = _current.set(self)
        try:
            with (
                on_device(state.device),
                _core.RecordingPause(),  # a tape around fit must not record; a step has its own
                tracing.numbering(tracing.Streams()),
            ):
                batch = self._take_batch(inputs)
                share = self._source.share
                with (
                    self._recording(),
                    replicas.sharing(share),
                    keeping_metrics(model, share),
                ):
                    results = checked_results(model, self._kind, method(batch))
                self._keep(results)
        finally:
            _current.reset(token)
            model._clear_losses()
        if not self._ran:
            # The first step may make layers and metrics.
            self._ran = True
            model._forget_metrics()
            state.parts = None

    def _recording(self) -> contextlib.AbstractContextManager[None]:
        """Returns a block that records what gradients go through, if the step may take some."""
        if self._kind != TRAIN and not self._model._has_own_step(self._kind):
            return contextlib.nullcontext()
        return StepGradients().recording()

    def _take_batch(self, inputs: list[Any]) -> Any:
        source, counter = self._source, self._state.step.core
        if source.rows is None:
            # The next batch overwrites this memory.
            arrays = [tensor.copy() for tensor in inputs]
        else:
            *inputs, order = inputs
            step = counter.value if source.counts else _core.zeros([], "int64", order.device)
            attributes = {"batch_size": source.batch_size}
            arrays = [
                dispatch.apply_one("take_batch", [tensor, order, step], attributes)
                for tensor in inputs
            ]
        if source.counts:
            counter.assign(counter.value + 1)
        return trees.map_structure(
            lambda place: None if place is None else arrays[place], source.structure
        )

    def note_loss(self, total: Any) -> None:
        """Counts the step if the sum of the losses so far is finite."""
        self.notes_finite_loss = True
        core = self._state.finite_steps.core
        with _core.RecordingPause():
            core.assign(core.value + ops.cast(ops.isfinite(total), "float32"))

    def _keep(self, results: Any) -> None:
        if not self.returns_results:
            results = {}
        self._leaves = [dispatch.convert(leaf) for leaf in trees.flatten(results)]
        self._outputs = results_structure(results)

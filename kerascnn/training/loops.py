"""The loops over epochs and steps behind fit, evaluate and predict."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kerascnn import _core, trees
from kerascnn.callbacks.callback_list import CallbackList
from kerascnn.training.feed import Feed
from kerascnn.training.logs import LazyLogs, as_number, sorted_logs
from kerascnn.training.pacing import Pacer
from kerascnn.training.steps import PREDICT, TEST, TRAIN, CompiledStep

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery


class Validation(NamedTuple):
    """Validation inside of fit: its batches, how many of them, and after which epochs."""

    feed: Feed
    steps: int | None
    frequency: Any

    def is_due(self, epoch: int) -> bool:
        if isinstance(self.frequency, int):
            return (epoch + 1) % self.frequency == 0
        return epoch + 1 in self.frequency


def step_logs(model: StepMachinery, step: CompiledStep | None) -> dict[str, Any]:
    """The metrics so far, or what a step of the user's own returned where those are others."""
    metrics = model._metric_logs()
    if step is not None and step.has_outputs:
        outputs = trees.map_structure(as_number, step.outputs())
        if isinstance(outputs, dict) and set(outputs) != set(metrics):
            return sorted_logs(outputs)
    return sorted_logs(metrics)


class StepRunner:
    """Runs the steps of one feed and reports to the callbacks.

    Many steps run at once, without Python, unless a callback overrides the hooks of batches.

    Args:
        model: the model.
        kind: `"train"` or `"test"`.
        feed: the batches.
        callbacks: who is told.
        stop: whether to stop, asked after each slice of steps.
    """

    def __init__(
        self,
        model: StepMachinery,
        kind: str,
        feed: Feed,
        callbacks: CallbackList,
        stop: Callable[[], bool],
    ):
        self._model = model
        self._kind = kind
        self._feed = feed
        self._callbacks = callbacks
        self._stop = stop
        self._pacer = Pacer(model._state.device)
        self._last: CompiledStep | None = None
        self._step_by_step = callbacks.uses_batch_hooks(kind)
        self._warned = False

    def run(self, limit: int, epoch: int | None = None) -> dict[str, Any]:
        """Up to `limit` steps of the current pass. Returns the logs."""
        seen = 0
        while seen < limit and self._feed.steps_left and not self._stop():
            if self._step_by_step:
                self._run_one(seen)
                seen += 1
            else:
                seen += self._run_slice(limit - seen)
            self._callbacks.on_steps(self._kind, seen, self.logs)
            if epoch is not None:
                self._check_loss(seen, epoch)
        return self.logs()

    def _run_slice(self, limit: int) -> int:
        steps = min(limit, self._pacer.next_slice())
        self._last, count = self._feed.run(steps)
        self._feed.plan_ahead()
        _core.synchronize(self._model._state.device)
        self._pacer.finished(count)
        return count

    def _run_one(self, batch: int) -> None:
        begin = getattr(self._callbacks, f"on_{self._kind}_batch_begin")
        end = getattr(self._callbacks, f"on_{self._kind}_batch_end")
        begin(batch, {})
        self._last, _ = self._feed.run(1)
        end(batch, LazyLogs(self.logs))

    def logs(self) -> dict[str, Any]:
        """The logs after the steps so far."""
        return step_logs(self._model, self._last)

    def _check_loss(self, seen: int, epoch: int) -> None:
        if self._last is None or not self._last.notes_finite_loss:
            return
        finite = int(self._model._state.finite_steps.read())
        if finite >= seen:
            return
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"The loss became NaN or infinite in epoch {epoch + 1}, step {finite + 1} (counted "
                "from 1). A smaller learning rate, scaled inputs or checked labels may help; "
                "keras.callbacks.TerminateOnNaN() stops training there.",
                RuntimeWarning,
                stacklevel=4,
            )
        self._callbacks.on_invalid_loss(finite)


def run_epochs(
    model: StepMachinery,
    feed: Feed,
    callbacks: CallbackList,
    initial_epoch: int,
    epochs: int,
    steps_per_epoch: int | None,
    validation: Validation | None,
) -> None:
    """Trains for the epochs from `initial_epoch` on, with validation where it is due."""
    model.stop_training = False
    runner = StepRunner(model, TRAIN, feed, callbacks, lambda: model.stop_training)
    validator = None
    if validation is not None:
        feed_of_validation, stop = validation.feed, lambda: model.stop_evaluating
        validator = StepRunner(model, TEST, feed_of_validation, callbacks, stop)
    logs: dict[str, Any] = {}
    callbacks.on_train_begin()
    for epoch in range(initial_epoch, epochs):
        model.reset_metrics()
        model._state.finite_steps.write(0)
        callbacks.on_epoch_begin(epoch)
        logs = _run_epoch(runner, feed, steps_per_epoch, epoch)
        if validator is not None and validation is not None and validation.is_due(epoch):
            results = run_test(model, validator, validation.feed, validation.steps, callbacks)
            logs.update({f"val_{name}": value for name, value in results.items()})
        callbacks.on_epoch_end(epoch, logs)
        if model.stop_training:
            break
    if model.optimizer is not None:
        model.optimizer.finalize_variable_values(model.trainable_weights)
    callbacks.on_train_end(logs)


def _run_epoch(
    runner: StepRunner, feed: Feed, steps_per_epoch: int | None, epoch: int
) -> dict[str, Any]:
    """One epoch: a pass over the data, or `steps_per_epoch` steps from where the last one ended."""
    if steps_per_epoch is None or feed.steps_left == 0:
        feed.begin_pass()
    steps = steps_per_epoch or feed.num_batches
    if steps > feed.steps_left:
        warnings.warn(
            f"The data has only {feed.steps_left} of the {steps} batches that steps_per_epoch asks "
            "for: the epoch ends early.",
            stacklevel=4,
        )
    return runner.run(steps, epoch)


def run_test(
    model: StepMachinery,
    runner: StepRunner,
    feed: Feed,
    steps: int | None,
    callbacks: CallbackList,
) -> dict[str, Any]:
    """One evaluation over all batches, or the first `steps` of them."""
    model.stop_evaluating = False
    model.reset_metrics()
    callbacks.on_test_begin()
    feed.begin_pass()
    logs = runner.run(min(steps or feed.num_batches, feed.num_batches))
    callbacks.on_test_end(logs)
    return logs


def run_predict(
    model: StepMachinery, feed: Feed, steps: int | None, callbacks: CallbackList
) -> Any:
    """The outputs for all batches, or the first `steps` of them, as arrays."""
    model.stop_predicting = False
    step_by_step = callbacks.uses_batch_hooks(PREDICT)
    collected: list[list[np.ndarray]] = []
    structure: Any = None
    callbacks.on_predict_begin()
    feed.begin_pass()
    for batch in range(min(steps or feed.num_batches, feed.num_batches)):
        if step_by_step:
            callbacks.on_predict_batch_begin(batch, {})
        step, _ = feed.run(1)
        structure = trees.map_structure(np.array, step.outputs())
        collected.append(trees.flatten(structure))
        if step_by_step:
            callbacks.on_predict_batch_end(batch, {"outputs": structure})
        callbacks.on_steps(PREDICT, batch + 1, dict)
        if model.stop_predicting:
            break
    callbacks.on_predict_end()
    return trees.pack_as(
        structure, [np.concatenate(parts) for parts in zip(*collected, strict=True)]
    )

"""The loops over epochs and steps behind fit, evaluate and predict."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kerascnn import _core, trees
from kerascnn.callbacks.callback_list import CallbackList
from kerascnn.distribution import replicas
from kerascnn.tracebacks import warn
from kerascnn.training.batch_feed import BatchFeed
from kerascnn.training.feed import Feed
from kerascnn.training.logs import LazyLogs, as_number, flat_logs, sorted_logs
from kerascnn.training.pacing import PATIENCE, USUAL_PATIENCE, LaunchQueue, Pacer
from kerascnn.training.peers import description_for_peers
from kerascnn.training.resumption import Training
from kerascnn.training.steps import TEST, TRAIN, Step
from kerascnn.training.turns import turns_of

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery


class Validation(NamedTuple):
    """Validation inside of fit: its batches, how many of them, and after which epochs."""

    feed: Feed | BatchFeed
    steps: int | None
    frequency: Any

    def is_due(self, epoch: int) -> bool:
        if isinstance(self.frequency, int):
            return (epoch + 1) % self.frequency == 0
        return epoch + 1 in self.frequency


def step_logs(
    model: StepMachinery, step: Step | None, of_epoch: bool = True, of_all: bool = True
) -> dict[str, Any]:
    """Returns what a step of the user's own returned, or the metrics so far.

    As in Keras, the logs of an epoch are the metrics also where a step of the user's own returned
    values of the same names. Dictionaries in what it returned are still there. With `of_all` the
    metrics are those of all processes, and other numbers the means of theirs: all processes ask for
    them.
    """
    if step is None or not step.has_outputs:
        return sorted_logs(model._metric_logs(of_all))
    outputs = trees.map_structure(as_number, step.outputs())
    if of_all:
        outputs = replicas.mean_of_logs(outputs)
    if of_epoch or not isinstance(outputs, dict):
        metrics = model._metric_logs(of_all)
        if not isinstance(outputs, dict) or set(outputs) == set(metrics):
            return sorted_logs(metrics)
    return outputs


class StepRunner:
    """Runs the steps of one feed and reports to the callbacks.

    Many steps run at once, without Python, unless a callback overrides the hooks of batches.

    Args:
        model: the model.
        kind: `"train"` or `"test"`.
        feed: the batches.
        callbacks: who is told.
        stop: whether to stop, asked after each slice of steps.
        training: the fit whose steps these are, if they train.
    """

    def __init__(
        self,
        model: StepMachinery,
        kind: str,
        feed: Feed | BatchFeed,
        callbacks: CallbackList,
        stop: Callable[[], bool],
        training: Training | None = None,
    ):
        self._model = model
        self._kind = kind
        self._feed = feed
        self._callbacks = callbacks
        self._stop = stop
        self._training = training
        self._pacer = Pacer(model._state.device, per_step=feed.step_seconds)
        self._patience = PATIENCE if kind == TEST else USUAL_PATIENCE
        self._last: Step | None = None
        self._step_by_step = callbacks.uses_batch_hooks(kind)
        # A GPU's driver takes a while to make its fences.
        self._queue = LaunchQueue(model._state.device) if self._step_by_step else None
        self._warned = False

    def run(self, steps: int | None, epoch: int | None = None) -> dict[str, Any]:
        """An epoch: a pass over the data, or `steps` of its batches. Returns the logs."""
        limit = self._feed.begin_epoch(steps)
        self._batch_begin = self._callbacks.batch_hook(self._kind, end=False)
        self._batch_end = self._callbacks.batch_hook(self._kind, end=True)
        seen = checked = 0 if self._training is None else self._training.begin_steps()
        stopped = False
        while seen < limit:
            stopped = self._stop()
            if stopped or not self._feed.has_next():
                break
            if self._step_by_step:
                seen += self._run_execution(seen, limit - seen)
            else:
                seen += self._run_slice(limit - seen)
            if self._training is not None:
                self._training.took_steps(seen, self._epoch_logs)
            if self._model._training is not None:
                turns_of(self._model).give_way()
            self._callbacks.on_steps(self._kind, seen, self.logs)
            # Single steps are enqueued ahead of the device, without a wait for it each time.
            # Processes look together, when the epoch has ended.
            looks = replicas.active() is None and (self._queue is None or self._queue.may_look())
            if epoch is not None and looks:
                self._check_loss(seen, epoch)
                checked = seen
        if epoch is not None and checked < seen:
            self._check_loss(seen, epoch)
        if not stopped:
            self._feed.end_epoch()
        if self._training is not None and seen:
            return self._training.step_logs()
        return self._epoch_logs()

    def _epoch_logs(self) -> dict[str, Any]:
        return step_logs(self._model, self._last)

    def _run_slice(self, limit: float) -> int:
        steps, count = int(min(limit, self._pacer.next_slice())), 0
        if self._model.run_eagerly:
            steps = 1  # a callback may ask for a stop
        while count < steps and self._feed.has_next():
            self._last, done = self._feed.run(steps - count)
            count += done
        self._feed.plan_ahead()
        _core.synchronize(self._model._state.device, self._patience)
        self._pacer.finished(count)
        self._feed.step_seconds = self._pacer.per_step
        return count

    def _run_execution(self, batch: int, limit: float) -> int:
        """Runs as many steps as `steps_per_execution` says, between two hooks."""
        wanted = self._model.steps_per_execution
        steps, count = int(min(limit, wanted)), 0
        self._batch_begin(batch, {})
        while count < steps and self._feed.has_next():
            self._last, done = self._feed.run(steps - count, later=True)
            count += done
        assert self._queue is not None
        self._queue.launched()
        if self._training is not None:
            self._training.took_steps(batch + count, self._epoch_logs)
        # Several processes read them together, whether or not a callback of this one looks.
        is_alone = replicas.active() is None
        logs = LazyLogs(self._batch_logs) if is_alone else self._batch_logs()
        self._batch_end(batch + wanted - 1, logs)
        return count

    def logs(self) -> dict[str, Any]:
        """Returns the logs after the steps so far, of this process alone."""
        return flat_logs(step_logs(self._model, self._last, of_all=False))

    def _batch_logs(self) -> dict[str, Any]:
        return flat_logs(step_logs(self._model, self._last, of_epoch=False))

    def _check_loss(self, seen: int, epoch: int) -> None:
        if self._last is None or not self._last.notes_finite_loss:
            return
        finite = int(replicas.least(self._model._state.finite_steps.core))
        if finite >= seen:
            return
        if not self._warned:
            self._warned = True
            warn(
                f"The loss became NaN or infinite in epoch {epoch + 1}, step {finite + 1} (counted "
                "from 1). A smaller learning rate, scaled inputs or checked labels may help; "
                "keras.callbacks.TerminateOnNaN() stops training there.",
                RuntimeWarning,
            )
        self._callbacks.on_invalid_loss(finite)


def run_epochs(
    model: StepMachinery,
    feed: Feed | BatchFeed,
    callbacks: CallbackList,
    initial_epoch: int,
    epochs: int,
    steps_per_epoch: int | None,
    validation: Validation | None,
) -> None:
    """Trains from `initial_epoch` on, and validates when it is due."""
    model.stop_training = False
    replicas.check_alike(lambda: description_for_peers(model, feed, epochs, steps_per_epoch))
    training = Training(model, callbacks, feed, None if validation is None else validation.feed)
    training.epoch = initial_epoch
    runner = StepRunner(model, TRAIN, feed, callbacks, lambda: model.stop_training, training)
    validator = None
    if validation is not None:
        feed_of_validation, stop = validation.feed, lambda: model.stop_evaluating
        validator = StepRunner(model, TEST, feed_of_validation, callbacks, stop)
    feed.reset()
    before, model._training = model._training, training
    try:
        _run_epochs(
            model, training, runner, validator, callbacks, epochs, steps_per_epoch, validation
        )
    finally:
        model._training = before


def _run_epochs(
    model: StepMachinery,
    training: Training,
    runner: StepRunner,
    validator: StepRunner | None,
    callbacks: CallbackList,
    epochs: int,
    steps_per_epoch: int | None,
    validation: Validation | None,
) -> None:
    callbacks.on_train_begin()
    # A callback that restored an interrupted training has set the epoch.
    while training.epoch < epochs and not training.has_ended:
        epoch = training.epoch
        model.reset_metrics()
        model._state.finite_steps.clear()
        callbacks.on_epoch_begin(epoch)
        logs = runner.run(steps_per_epoch, epoch)
        if validator is not None and validation is not None and validation.is_due(epoch):
            results = run_test(model, validator, validation.feed, validation.steps, callbacks)
            logs.update({f"val_{name}": value for name, value in results.items()})
        training.end_epoch(epoch, logs)
        callbacks.on_epoch_end(epoch, logs)
        if model.stop_training:
            break
    if model.optimizer is not None:
        model.optimizer.finalize_variable_values(model.trainable_weights)
    callbacks.on_train_end(training.logs)


def run_test(
    model: StepMachinery,
    runner: StepRunner,
    feed: Feed | BatchFeed,
    steps: int | None,
    callbacks: CallbackList,
) -> dict[str, Any]:
    """Runs one evaluation over all batches, or over the first `steps`."""
    feed.reset()
    model.stop_evaluating = False
    callbacks.on_test_begin()
    model.reset_metrics()
    logs = flat_logs(runner.run(steps))
    callbacks.on_test_end(logs)
    return logs

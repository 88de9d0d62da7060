"""The loop of predict, which takes the outputs of many steps together, or of each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kerascnn import _core
from kerascnn.callbacks.callback_list import CallbackList
from kerascnn.ops import dispatch
from kerascnn.training.batch_feed import BatchFeed
from kerascnn.training.feed import Feed
from kerascnn.training.output_buffers import OutputBuffers
from kerascnn.training.pacing import PATIENCE, Pacer
from kerascnn.training.steps import PREDICT, Step

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery


class Predictor:
    """Runs the steps of one feed and collects their outputs.

    Outputs of whole batches of arrays stay on the device, where there is room for many steps; they
    come to the host when the buffers are full and at the end. Batches of a stream, the last short
    one, outputs that are not rows of samples, and all where a callback has hooks of batches, come
    one by one.

    Args:
        model: the model.
        feed: the batches.
        callbacks: who is told.
        as_tensor: whether the outputs stay on the device.
        device: where the feed's steps run, by default the model's device.
    """

    def __init__(
        self,
        model: StepMachinery,
        feed: Feed | BatchFeed,
        callbacks: CallbackList,
        as_tensor: bool = False,
        device: str | None = None,
    ):
        self._as_tensor = as_tensor
        self._model = model
        self._feed = feed
        self._callbacks = callbacks
        self._device = device or model._state.device
        self._step_by_step = callbacks.uses_batch_hooks(PREDICT)
        self._buffers: OutputBuffers | None = None
        if not self._step_by_step:
            self._buffers = feed.output_buffers
        self._pacer = Pacer(self._device, per_step=feed.step_seconds)
        self._parts: list[list[Any]] = []  # the leaves of the outputs, in parts of several rows
        self._last: Step | None = None

    def run(self, steps: int | None) -> Any:
        """Returns the outputs for all batches, or the first `steps`, as arrays or tensors."""
        self._model.stop_predicting = False
        self._callbacks.on_predict_begin()
        limit, seen = self._feed.begin_epoch(steps), 0
        if self._buffers is not None:
            self._buffers.clear()
        while seen < limit and self._feed.has_next():
            if self._buffers is None:
                self._run_one(seen)
                seen += 1
            else:
                most = 1 if self._model.stop_predicting else limit - seen
                seen += self._run_slice(self._buffers, most)
            self._callbacks.on_steps(PREDICT, seen, dict)
            if self._model.stop_predicting:
                break
        else:
            self._feed.end_epoch()
        self._drain()
        self._callbacks.on_predict_end()
        if self._last is None:
            raise ValueError(
                "There are no batches to predict for: the data ended before the first."
            )
        return self._last.pack([_joined(parts) for parts in zip(*self._parts, strict=True)])

    def _run_one(self, batch: int) -> None:
        if self._step_by_step:
            self._callbacks.on_predict_batch_begin(batch, {})
        step, _ = self._feed.run(1)
        assert step is not None
        self._add(step)
        if self._step_by_step:
            self._callbacks.on_predict_batch_end(batch, {"outputs": step.pack(self._parts[-1])})

    def _run_slice(self, buffers: OutputBuffers, limit: float) -> int:
        """Runs some steps without reading their outputs; returns how many."""
        steps = int(min(limit, self._pacer.next_slice(), buffers.room))
        count, last = 0, None
        while count < steps and last is None and self._feed.has_next():
            step, done = self._feed.run(steps - count)
            assert step is not None
            if step.buffers is buffers:
                self._last = step
                buffers.note(done)
            else:
                last = step
            count += done
        self._feed.plan_ahead()
        takes = last is not None or buffers.room == 0 or not self._feed.has_next()
        if self._as_tensor or not takes:
            _core.synchronize(self._device, PATIENCE)
        if takes:
            self._drain()  # arrays are waited for
        if last is not None:
            self._add(last)
        self._pacer.finished(count)
        self._feed.step_seconds = self._pacer.per_step
        return count

    def _add(self, step: Step) -> None:
        """Takes the outputs of the last step."""
        self._last = step
        self._parts.append(step.copies_of_outputs(self._as_tensor))

    def _drain(self) -> None:
        """Takes the outputs of the steps in the buffers."""
        if self._buffers is not None and not self._buffers.is_empty:
            self._parts.append(self._buffers.take(self._as_tensor))


def _joined(parts: tuple[Any, ...]) -> Any:
    """Joins all rows to one array or tensor, without a copy if there is only one part."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], _core.Tensor):
        return dispatch.run("concatenate", parts, {"axis": 0})[0]
    return np.concatenate(parts)

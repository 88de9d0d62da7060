"""Predictions by several devices of this process: each has some of the batches, one after another.

The devices don't wait for one another, so each has the loop of `predict` to itself, in a thread.
"""

from __future__ import annotations

import contextvars
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from kerascnn import _core, trees
from kerascnn.callbacks.callback_list import CallbackList
from kerascnn.distribution import replicas
from kerascnn.ops import dispatch
from kerascnn.training.data import ArrayData
from kerascnn.training.feed import Feed
from kerascnn.training.prediction import Predictor
from kerascnn.training.replicated_step import states_of
from kerascnn.training.steps import PREDICT

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery


def is_shared(
    model: StepMachinery, data: Any, batch_size: int, steps: int | None, callbacks: Any
) -> bool:
    """Tells whether all devices predict: for arrays of so many batches, and without callbacks.

    Sources of batches, and hooks that see one batch after the other, are for the first device.
    """
    group = replicas.local_group()
    if group is None or callbacks or model.run_eagerly or not isinstance(data, ArrayData):
        return False
    batches = -(-data.num_samples // batch_size)
    return batches >= group.size and (steps is None or steps >= group.size)


def predict_on_devices(
    model: Any, data: Any, batch_size: int, steps: int | None, verbose: Any, as_tensor: bool
) -> Any:
    """Returns the outputs for all rows, with the bits that one device has.

    Args:
        model: the model.
        data: the arrays.
        batch_size: samples of a batch of one device.
        steps: how many batches, `None` for all.
        verbose: whether the first device's progress is shown.
        as_tensor: whether to return tensors on the first device.
    """
    group = replicas.local_group()
    states = states_of(model, group, model._prepare(PREDICT, data))
    batches = -(-data.num_samples // batch_size)
    batches = batches if steps is None else min(batches, steps)
    feeds, first = [], 0
    for replica, state in zip(group.replicas, states, strict=True):
        own = batches // group.size + (replica.rank < batches % group.size)
        rows = slice(first * batch_size, (first + own) * batch_size)
        first += own
        with replica.recording():
            feeds.append(Feed(model, PREDICT, data._slice(rows), batch_size, state, None, True))
    for feed in feeds:
        for step in feed.steps:
            group.refresh(step.stand_ins)
    shown = model._callback_list(None, verbose, 1, feeds[0].num_batches)
    silent = CallbackList(None, model=model, verbose=0, epochs=1, steps=None)
    predictors = [
        Predictor(model, feed, shown if feed is feeds[0] else silent, as_tensor, state.device)
        for feed, state in zip(feeds, states, strict=True)
    ]
    with model._running(shown, *feeds):
        found = _run_all(model, predictors)
    parts = [trees.flatten(one) for one in found]
    whole = [_joined(of_all, group.devices[0]) for of_all in zip(*parts, strict=True)]
    return trees.pack_as(found[0], whole)


def _run_all(model: StepMachinery, predictors: list[Predictor]) -> list[Any]:
    """Runs them at the same time. All have ended where one fails, or on Ctrl-C."""
    with ThreadPoolExecutor(len(predictors)) as threads:
        runs = [
            threads.submit(contextvars.copy_context().run, predictor.run, None)
            for predictor in predictors
        ]
        try:
            return [run.result() for run in runs]
        except BaseException:
            model.stop_predicting = True
            raise


def _joined(parts: tuple[Any, ...], device: str) -> Any:
    if isinstance(parts[0], _core.Tensor):
        moved = [part.to(device) for part in parts]
        return dispatch.run("concatenate", moved, {"axis": 0})[0]
    return np.concatenate(parts)

"""A fit under way, and all that it depends on: what an interrupted one needs to go on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kerascnn.callbacks.callback_list import CallbackList
from kerascnn.distribution import replicas, sharded_state
from kerascnn.training import random_places
from kerascnn.training.batch_feed import BatchFeed
from kerascnn.training.feed import Feed
from kerascnn.training.steps import TRAIN
from kerascnn.variable import Variable

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery


class Training:
    """Where a training is. `state` takes it down, and `restore` makes another one go on there.

    A training that goes on ends with the bits of one that was never interrupted: the state has all
    variables, the places of random generators and of the data, and what callbacks know.

    Args:
        model: the model.
        callbacks: the callbacks of the fit; None in a loop of the user's own.
        feed: the training data; None in a loop of the user's own.
        validation: the validation data, if there are any.

    Attributes:
        epoch: the number of the epoch, from 0.
        batch: how many of its steps were taken.
        logs: the logs of the epoch that ended last.
        step_logs: reads the logs of the epoch that runs.
        is_restored: whether it goes on where another one was.
    """

    def __init__(
        self,
        model: StepMachinery,
        callbacks: CallbackList | None = None,
        feed: Feed | BatchFeed | None = None,
        validation: Feed | BatchFeed | None = None,
    ):
        self._model = model
        self._callbacks = callbacks
        self._feeds = {"training": feed, "validation": validation}
        # A state in the middle of an epoch, which has to begin first, and where it comes from.
        self._pending: tuple[dict[str, Any], str] | None = None
        self.epoch = 0
        self.batch = 0
        self.logs: dict[str, Any] = {}
        self.step_logs: Callable[[], dict[str, Any]] = dict
        self.is_restored = False

    def keep_places(self) -> None:
        """Makes the data note where each pass begins, for states that are taken later."""
        for feed in self._feeds.values():
            if feed is not None:
                feed.keeps_places = True

    # The state ---------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Returns all that the rest of the training depends on, nested, with arrays in it."""
        feeds = self._feeds.items()
        # An epoch begins with metrics that have seen nothing.
        metrics = self._model._all_metrics() if self.batch else []
        of_each = replicas.values_of_each(self._metrics() if self.batch else {})
        with replicas.whole_metrics(metrics):
            seen = _values(self._metrics()) if self.batch else {}
        under_way = self._sums_under_way()
        gathered = replicas.values_of_each(under_way)
        with sharded_state.saving_together(self._model):
            variables = self._values_of_variables()
        return {
            "epoch": self.epoch,
            "batch": self.batch,
            "logs": dict(self.logs),
            "step_logs": self.step_logs() if self.batch else {},
            "has_stopped": bool(self._model.stop_training),
            "finite_steps": 0.0 if self._steps is None else float(self._steps.finite_steps.read()),
            "variables": variables,
            "gathered_of_each": gathered,
            "metrics": seen,
            # As many processes go on with the sums that each had, whose bits depend on their order.
            "metrics_of_each": of_each,
            "callbacks": {} if self._callbacks is None else self._callbacks.state_dict(),
            "feeds": {name: feed.position for name, feed in feeds if feed is not None},
            "random": random_places.take(),
        }

    def restore(self, state: dict[str, Any], origin: str) -> None:
        """Goes on where another training was: with its next epoch, or in the middle of one.

        An epoch that goes on begins as any other, with the hooks of callbacks. Whatever they change
        then, the state is set after it.

        Args:
            state: what its `state` returned.
            origin: where it comes from, for errors.

        Raises:
            ValueError: where it is of another model, optimizer or data, or is damaged. The model is
                left as it was where its variables don't fit.
        """
        with _restoring(origin):
            _check(state["variables"], self._variables(), "this model and optimizer")
            self._pending = (state, origin) if state["batch"] else None
            self.epoch, self.logs = int(state["epoch"]), dict(state["logs"])
            self.is_restored = True
            self._set(state)
            if self._pending is None:
                self._set_places(state)

    def begin_steps(self) -> int:
        """Brings back the middle of an epoch that has begun; returns how many steps it has."""
        self.batch = 0
        pending, self._pending = self._pending, None
        if pending is not None:
            state, origin = pending
            feed = self._feeds["training"]
            if feed is not None and not self._model._is_built(TRAIN) and feed.has_next():
                # Where Python runs steps with values, the first one makes metrics. What else it
                # does is undone.
                feed.run(1)
            with _restoring(origin):
                self.batch = int(state["batch"])
                metrics = self._metrics()
                _check(state["metrics"], metrics, "these metrics")
                self._set(state)
                if not replicas.assign_of_each(metrics, state["metrics_of_each"]):
                    for name, variable in metrics.items():
                        replicas.assign_whole(variable, state["metrics"][name])
                if self._steps is not None:
                    self._steps.finite_steps.write(np.float32(state["finite_steps"]))
                self._set_places(state)
                logs = dict(state["step_logs"])
                self.step_logs = lambda: logs  # until another step has run
        return self.batch

    def took_steps(self, batch: int, logs: Callable[[], dict[str, Any]]) -> None:
        """Notes how many steps of the epoch were taken, and what reads its logs."""
        self.batch, self.step_logs = batch, logs

    def end_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        """Notes that an epoch has ended, with these logs."""
        self.epoch, self.batch, self.logs = epoch + 1, 0, logs
        # What read the logs knows this training, and both would keep the data until Python's search
        # for such circles.
        self.step_logs = dict

    @property
    def has_ended(self) -> bool:
        """Tells whether a callback had stopped the training that this one goes on with."""
        return self.is_restored and self._pending is None and self._model.stop_training

    @property
    def _steps(self) -> Any:
        return self._model._state

    def _set(self, state: dict[str, Any]) -> None:
        variables = self._variables()
        _assign(variables, state["variables"])
        # Other numbers of processes share the mean of the gradients since the last update.
        gathered = state.get("gathered_of_each", [])
        names = gathered[0] if gathered else ()
        replicas.assign_of_each({name: variables[name] for name in names}, gathered)
        if self._callbacks is not None:
            self._callbacks.load_state_dict(state["callbacks"])
        self._model.stop_training = bool(state["has_stopped"])

    def _set_places(self, state: dict[str, Any]) -> None:
        for name, position in state["feeds"].items():
            feed = self._feeds.get(name)
            if feed is not None:
                feed.go_to(position, int(state["batch"]) if name == "training" else 0)
        # Going there drew numbers.
        random_places.restore(state["random"])

    def _values_of_variables(self) -> dict[str, np.ndarray]:
        """Returns the values of all variables; in other processes than the first, of its own."""
        variables = self._variables()
        optimizer: Any = self._model.optimizer
        if optimizer is None or not replicas.is_first():
            return _values(variables)
        of_model = {name: v for name, v in variables.items() if name.startswith("model/")}
        values = optimizer._values_for_files()
        return {**_values(of_model), **{f"optimizer/{i}": v for i, v in enumerate(values)}}

    def _variables(self) -> dict[str, Any]:
        """Returns the variables of the model and the optimizer by their names in states.

        There may be what stands for those that other processes have.
        """
        from kerascnn.models.weights_file import named_variables

        model: Any = self._model
        found = {f"model/{name}": v for name, v, _ in named_variables(model)}
        optimizer = model.optimizer
        if optimizer is not None:
            if not optimizer.built:
                optimizer.build(model.trainable_variables)
            found.update({f"optimizer/{i}": v for i, v in enumerate(optimizer._whole_state())})
        return found

    def _sums_under_way(self) -> dict[str, Variable]:
        """Returns the optimizer's variables that each process has of its own now."""
        optimizer: Any = self._model.optimizer
        own = {id(v) for v in (() if optimizer is None else optimizer._sums_under_way())}
        return {name: v for name, v in self._variables().items() if id(v) in own}

    def _metrics(self) -> dict[str, Variable]:
        return {
            f"{i}/{j}": variable
            for i, metric in enumerate(self._model._all_metrics())
            for j, variable in enumerate(metric.variables)
        }


def _values(variables: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: v.numpy() for name, v in variables.items() if isinstance(v, Variable)}


def _assign(variables: dict[str, Variable], values: dict[str, np.ndarray]) -> None:
    for name, variable in variables.items():
        variable.assign(values[name])


def _check(values: dict[str, Any], variables: dict[str, Variable], what: str) -> None:
    """Raises ValueError where values are not of these variables."""
    wrong = [
        name
        for name, variable in variables.items()
        if name not in values or np.shape(values[name]) != tuple(variable.shape)
    ]
    wrong += [name for name in values if name not in variables]
    if wrong:
        raise ValueError(f"it is not of {what}: {', '.join(wrong[:5])} differ")


@contextlib.contextmanager
def _restoring(origin: str) -> Iterator[None]:
    """Says of errors what was being restored; a damaged state can cause errors of many kinds."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"The training state in {origin} can't be restored: {error}. Remove the folder to "
            "start anew."
        ) from error

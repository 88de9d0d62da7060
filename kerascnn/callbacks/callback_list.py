"""Treats all callbacks of a fit as one."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from kerascnn import trees
from kerascnn.callbacks.callback import Callback
from kerascnn.callbacks.history import History
from kerascnn.callbacks.progbar_logger import ProgbarLogger
from kerascnn.distribution import replicas


class CallbackList(Callback):
    """Calls each callback in the order in which they were given, `BackupAndRestore` last.

    A training loop of your own calls its hooks, as `fit` does.

    Args:
        callbacks: a list of callbacks, or one.
        add_history: whether to add a `History` where there is none.
        add_progbar: whether to add a `ProgbarLogger` where there is none.
        model: the model.
        **params: handed to each callback's `set_params`.

    Raises:
        TypeError: where one of them is not a `Callback`.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> callbacks = keras.callbacks.CallbackList(add_history=True, model=model, epochs=2)
    >>> callbacks.on_train_begin()
    >>> for epoch, loss in enumerate([0.5, 0.25]):
    ...     callbacks.on_epoch_begin(epoch)
    ...     callbacks.on_epoch_end(epoch, {"loss": loss})
    >>> callbacks.on_train_end()
    >>> model.history.history
    {'loss': [0.5, 0.25]}
    """

    def __init__(
        self,
        callbacks: Any = None,
        add_history: bool = False,
        add_progbar: bool = False,
        model: Any = None,
        **params: Any,
    ):
        super().__init__()
        self._open_blocks = 0
        self.callbacks = trees.flatten(callbacks) if callbacks else []
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise TypeError(
                    "Each of `callbacks` has to be an instance of keras.callbacks.Callback. "
                    f"Received: {callback!r}"
                )
        self._history = self._find_or_add(History, add_history)
        self._find_or_add(ProgbarLogger, add_progbar)
        self._sort()
        if model is not None:
            self.set_model(model)
        self.set_params(params)

    def _find_or_add(self, cls: type, add: bool) -> Any:
        found = next((c for c in reversed(self.callbacks) if isinstance(c, cls)), None)
        if found is None and add:
            found = cls()
            self.callbacks.append(found)
        return found

    def append(self, callback: Callback) -> None:
        """Adds a callback, which is called last.

        Args:
            callback: a `Callback`.
        """
        self.callbacks.append(callback)
        self._sort()

    def _sort(self) -> None:
        self.callbacks.sort(key=lambda callback: callback._comes_last)

    def state_dict(self) -> dict[str, Any]:
        """What the callbacks know, by their classes and, where several are of one, their places."""
        states = {name: callback.state_dict() for name, callback in self._named()}
        return {name: state for name, state in states.items() if state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Gives each callback its part of what `state_dict` returned, if there is one."""
        for name, callback in self._named():
            if name in state:
                callback.load_state_dict(state[name])

    def _named(self) -> list[tuple[str, Callback]]:
        counts: Counter[str] = Counter()
        named = []
        for callback in self.callbacks:
            kind = type(callback).__name__
            named.append((f"{kind}_{counts[kind]}", callback))
            counts[kind] += 1
        return named

    def set_params(self, params: dict) -> None:
        self.params = params
        for callback in self.callbacks:
            callback.set_params(params)

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        if self._history is not None:
            model.history = self._history
        for callback in self.callbacks:
            callback.set_model(model)

    def _of_this_process(self) -> list[Callback]:
        """Returns those whose hooks this process calls."""
        return [callback for callback in self.callbacks if _runs_here(callback)]

    def uses_batch_hooks(self, kind: str) -> bool:
        return any(callback.uses_batch_hooks(kind) for callback in self.callbacks)

    def on_steps(self, kind: str, seen: int, logs: Callable[[], dict]) -> None:
        """Runs after some steps; `logs` reads the metrics from the device if asked to."""
        for callback in self._of_this_process():
            if isinstance(callback, ProgbarLogger):
                callback.on_steps(kind, seen, logs)

    def on_invalid_loss(self, batch: int) -> None:
        """Runs after steps in which step `batch` made the loss infinite or NaN."""
        for callback in self._of_this_process():
            handler = getattr(callback, "on_invalid_loss", None)
            if handler is not None:
                handler(batch)

    def close(self) -> None:
        """Leaves displays as they are and closes files; called when training is interrupted."""
        for callback in self.callbacks:
            callback._close()

    def _call(self, hook: str, *args: Any) -> None:
        *place, logs = args
        self._call_each(self.callbacks, hook, *place, _as_numbers(logs))

    def _call_each(self, callbacks: list[Callback], hook: str, *args: Any) -> None:
        processes = replicas.active()
        for callback in callbacks:
            if _runs_here(callback):
                getattr(callback, hook)(*args)
            if processes is not None and callback.first_process_only and callback._overrides(hook):
                processes.wait()  # for what the first process does alone, such as writing a file

    def batch_hook(self, kind: str, end: bool) -> Callable[[int, dict], None]:
        """`on_<kind>_batch_begin` or its end of those callbacks that have one of their own.

        It is called for every batch: whom to call is found out once.
        """
        hook = f"on_{kind}_batch_{'end' if end else 'begin'}"
        if type(self) is not CallbackList:
            return getattr(self, hook)
        names = [hook] if kind != "train" else [hook, hook.replace("train_", "")]
        called = [
            callback
            for callback in self.callbacks
            if callback.uses_batch_hooks(kind) and any(map(callback._overrides, names))
        ]
        if replicas.active() is not None:
            return lambda batch, logs: self._call_each(called, hook, batch, logs)
        hooks = [getattr(callback, hook) for callback in called]

        def call(batch: int, logs: dict) -> None:
            for one in hooks:
                one(batch, logs)

        return call

    def _begin(self) -> None:
        self._open_blocks += 1

    def _end(self) -> None:
        self._open_blocks -= 1
        if self._open_blocks < 0:
            raise ValueError(
                "A training, test or prediction ended that had not begun: each `on_train_end`, "
                "`on_test_end` or `on_predict_end` belongs to a call of its `..._begin`."
            )

    def on_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        self._call("on_batch_begin", batch, logs)

    def on_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._call("on_batch_end", batch, logs)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._call("on_epoch_begin", epoch, logs)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._call("on_epoch_end", epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        self._call("on_train_batch_begin", batch, logs)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._call("on_train_batch_end", batch, logs)

    def on_test_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        self._call("on_test_batch_begin", batch, logs)

    def on_test_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._call("on_test_batch_end", batch, logs)

    def on_predict_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        self._call("on_predict_batch_begin", batch, logs)

    def on_predict_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._call("on_predict_batch_end", batch, logs)

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._begin()
        self._call("on_train_begin", logs)

    def on_train_end(self, logs: dict | None = None) -> None:
        self._call("on_train_end", logs)
        self._end()

    def on_test_begin(self, logs: dict | None = None) -> None:
        self._begin()
        self._call("on_test_begin", logs)

    def on_test_end(self, logs: dict | None = None) -> None:
        self._call("on_test_end", logs)
        self._end()

    def on_predict_begin(self, logs: dict | None = None) -> None:
        self._begin()
        self._call("on_predict_begin", logs)

    def on_predict_end(self, logs: dict | None = None) -> None:
        self._call("on_predict_end", logs)
        self._end()


def _runs_here(callback: Callback) -> bool:
    """Tells whether this process calls the callback's hooks."""
    return replicas.is_first() or not callback.first_process_only


def _as_numbers(logs: dict | None) -> dict:
    """Copies logs for the callbacks, with floats for numbers of any kind."""
    if not isinstance(logs, dict):
        return {}
    # these logs are read from the device when a callback first looks at them
    if type(logs) is not dict:
        return logs
    result: dict[str, Any] = {}
    for key in sorted(logs):
        value = logs[key]
        if isinstance(value, dict):
            result.update(_as_numbers(value))
        else:
            result[key] = float(np.asarray(value)) if _is_number(value) else value
    return result


def _is_number(value: Any) -> bool:
    is_plain = isinstance(value, (bool, int, float, np.generic))
    return is_plain or (hasattr(value, "__array__") and tuple(getattr(value, "shape", (0,))) == ())

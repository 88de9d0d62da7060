"""The base class of callbacks: hooks that training, evaluation and prediction call."""

from typing import Any

from kerascnn.tracebacks import names_arguments

_BATCH_HOOKS = {
    "train": ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end"),
    "test": ("on_test_batch_begin", "on_test_batch_end"),
    "predict": ("on_predict_batch_begin", "on_predict_batch_end"),
}


class Callback:
    """Base class of callbacks: override the hooks you need.

    Hooks for epochs cost nothing. A callback that overrides a hook for batches makes `fit` run step
    by step instead of many steps at once: every batch is seen, and every step pays for a return to
    Python, some 10 microseconds. On a GPU steps are enqueued ahead of the device, so that most of
    that is hidden: when a hook runs, the last few steps may still be under way. A hook that reads
    its logs, or a weight, waits for them.

    `epoch` and `batch` count from 0. `logs` is a dictionary of numbers by name: the loss and the
    metrics so far, in hooks that begin something usually empty. What hooks return is not used.

    Where several processes train one model, hooks are called in all of them, with the same logs: a
    hook that changes weights or stops training does so in all. One that writes files or shows
    something sets `first_process_only = True` in its class; it must then neither call `evaluate`,
    for which the processes meet, nor change the model or stop training.

    Attributes:
        model: the model that is trained.
        params: `verbose`, `epochs` and `steps`.
        first_process_only: whether hooks are called in the first process only.

    >>> class Printer(keras.callbacks.Callback):
    ...     def on_epoch_end(self, epoch, logs=None):
    ...         print(epoch, sorted(logs))
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse", metrics=["mae"])
    >>> x, y = np.ones((4, 2)), np.ones((4, 1))
    >>> history = model.fit(x, y, epochs=2, callbacks=Printer(), verbose=0)
    0 ['loss', 'mae']
    1 ['loss', 'mae']
    """

    # Whether its hooks are called after those of the others.
    _comes_last = False
    # Where several processes train one model: whether its hooks are called in the first one only.
    first_process_only = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        names_arguments(cls)

    def __init__(self) -> None:
        self.params: dict | None = None
        self._model: Any = None

    @property
    def model(self) -> Any:
        """The model that is trained, evaluated or predicts; None before."""
        return self._model

    def set_params(self, params: dict) -> None:
        """Called before the first hook, to set `params`.

        Args:
            params: `verbose`, `epochs` and `steps` (None where they are not known).
        """
        self.params = params

    def set_model(self, model: Any) -> None:
        """Called before the first hook, to set `model`.

        Args:
            model: the model that is trained, evaluated or predicts.
        """
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        """What this callback knows of a training, for one that is interrupted and goes on.

        `BackupAndRestore` keeps it with the training's state. The name is the one that PyTorch
        Lightning's callbacks have.

        Returns:
            A dictionary of numbers, texts, None, NumPy arrays, and lists and dictionaries of them.

        >>> class Slowest(keras.callbacks.Callback):
        ...     longest = 0.0
        ...     def state_dict(self):
        ...         return {"longest": self.longest}
        ...     def load_state_dict(self, state):
        ...         self.longest = state["longest"]
        >>> Slowest().state_dict()
        {'longest': 0.0}
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on with what `state_dict` returned, where `BackupAndRestore` restores a training.

        It is called after `on_train_begin`; and once more after `on_epoch_begin`, where training
        goes on in the middle of an epoch.

        Args:
            state: what `state_dict` returned. Tuples have become lists.
        """

    def _close(self) -> None:
        """Closes files and displays where training was interrupted, without `on_train_end`."""

    def uses_batch_hooks(self, kind: str) -> bool:
        """Tells whether hooks for batches are called, which keeps steps from running together.

        A callback that needs them only sometimes may override it.

        Args:
            kind: `"train"`, `"test"` or `"predict"`.

        Returns:
            Whether this callback overrides a hook for batches of this kind.

        >>> keras.callbacks.Callback().uses_batch_hooks("train")
        False
        >>> hook = lambda batch, logs: print(batch)
        >>> keras.callbacks.LambdaCallback(on_train_batch_end=hook).uses_batch_hooks("train")
        True
        """
        return any(self._overrides(hook) for hook in _BATCH_HOOKS[kind])

    def _overrides(self, hook: str) -> bool:
        is_own = getattr(type(self), hook, None) is not getattr(Callback, hook)
        return is_own or hook in getattr(self, "__dict__", {})

    def on_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """An older name of `on_train_batch_begin`."""

    def on_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """An older name of `on_train_batch_end`."""

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Called before the first batch of an epoch; `epoch` counts from 0."""

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Called after an epoch; `logs` has its metrics, those of validation with `val_`."""

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Called before a training batch; `batch` counts from 0 in each epoch."""
        self.on_batch_begin(batch, logs=logs)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Called after a training batch; `logs` has the metrics since the epoch began."""
        self.on_batch_end(batch, logs=logs)

    def on_test_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Called before a batch of `evaluate` or of validation."""

    def on_test_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Called after a batch of `evaluate` or of validation."""

    def on_predict_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Called before a batch of `predict`."""

    def on_predict_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Called after a batch of `predict`; `logs["outputs"]` has its results."""

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Called before the first epoch."""

    def on_train_end(self, logs: dict | None = None) -> None:
        """Called after the last epoch; `logs` are those of its end."""

    def on_test_begin(self, logs: dict | None = None) -> None:
        """Called before `evaluate` or validation."""

    def on_test_end(self, logs: dict | None = None) -> None:
        """Called after `evaluate` or validation."""

    def on_predict_begin(self, logs: dict | None = None) -> None:
        """Called before `predict`."""

    def on_predict_end(self, logs: dict | None = None) -> None:
        """Called after `predict`."""

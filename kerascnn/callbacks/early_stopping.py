"""Stops when a value has stopped getting better."""

import warnings
from typing import Any

from kerascnn.callbacks.monitor_callback import MonitorCallback
from kerascnn.utils.io_utils import print_msg

_STATE = ("wait", "stopped_epoch", "best", "best_weights", "best_epoch")


class EarlyStopping(MonitorCallback):
    """Stops training when the monitored value has not improved for `patience` epochs.

    Args:
        monitor: the value's name in the logs.
        min_delta: changes smaller than this are no improvement.
        patience: how many epochs without improvement to wait for.
        verbose: 1 says when training stops and which weights are restored.
        mode: `"min"`, `"max"` or `"auto"`.
        baseline: stop where the value does not beat this.
        restore_best_weights: whether to bring the best epoch's weights back at the end.
        start_from_epoch: epochs before this one don't count.

    >>> stop = keras.callbacks.EarlyStopping(monitor="loss", patience=3)
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> history = model.fit(
    ...     np.zeros((4, 2)), np.zeros((4, 1)), epochs=10, callbacks=[stop], verbose=0
    ... )
    >>> len(history.history["loss"])
    4
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0,
        patience: int = 0,
        verbose: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
    ):
        super().__init__(monitor, mode, min_delta=min_delta)
        self.patience = patience
        self.verbose = verbose
        self.baseline = baseline
        self.restore_best_weights = restore_best_weights
        self.start_from_epoch = start_from_epoch
        self._start()

    def _start(self) -> None:
        self.wait = 0
        self.stopped_epoch = 0
        self.best = None
        self.best_weights: list | None = None
        self.best_epoch = 0

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._start()

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _STATE}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in _STATE:
            setattr(self, name, state[name])

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if self.monitor_op is None:
            self._set_monitor_op()
        current = self.get_monitor_value(logs)
        if current is None or epoch < self.start_from_epoch:
            return
        if self.restore_best_weights and self.best_weights is None:
            self._keep(epoch)
        self.wait += 1
        if self._is_improvement(current, self.best):
            self.best = current
            self.best_epoch = epoch
            if self.restore_best_weights:
                self._keep(epoch)
            if self.baseline is None or self._is_improvement(current, self.baseline):
                self.wait = 0
            return
        if self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def _keep(self, epoch: int) -> None:
        self.best_weights = self.model.get_weights()
        self.best_epoch = epoch

    def on_train_end(self, logs: dict | None = None) -> None:
        if self.stopped_epoch > 0 and self.verbose > 0:
            print_msg(f"Epoch {self.stopped_epoch + 1}: early stopping")
        if self.restore_best_weights and self.best_weights is not None:
            if self.verbose > 0:
                print_msg(
                    "Restoring model weights from the end of the best epoch: "
                    f"{self.best_epoch + 1}."
                )
            self.model.set_weights(self.best_weights)

    def get_monitor_value(self, logs: dict | None) -> float | None:
        """The monitored value of an epoch; a subclass may compute its own.

        Args:
            logs: what the epoch's end brought.

        Returns:
            The value, or None, with a warning, where the logs lack it: the epoch does not count
            then.

        >>> keras.callbacks.EarlyStopping("loss").get_monitor_value({"loss": 0.5, "mae": 0.75})
        0.5
        """
        logs = logs or {}
        value = logs.get(self.monitor)
        if value is None:
            warnings.warn(
                f"EarlyStopping watches '{self.monitor}', which is not in the logs. They have: "
                f"{', '.join(logs)}.",
                stacklevel=2,
            )
        return value

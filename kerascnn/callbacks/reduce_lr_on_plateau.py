"""Lowers the learning rate when a value has stopped getting better."""

import warnings
from typing import Any

import numpy as np

from kerascnn.callbacks.learning_rates import learning_rate_logs, optimizers_of, read_rate
from kerascnn.callbacks.monitor_callback import MonitorCallback
from kerascnn.utils.io_utils import print_msg


class ReduceLROnPlateau(MonitorCallback):
    """Multiplies the learning rate by `factor` when the monitored value has not improved for
    `patience` epochs.

    Args:
        monitor: the value's name in the logs.
        factor: what the learning rate is multiplied by, less than 1.
        patience: how many epochs without improvement to wait for.
        verbose: 1 prints the new rate.
        mode: `"min"`, `"max"` or `"auto"`.
        min_delta: changes smaller than this are no improvement.
        cooldown: how many epochs to wait after a reduction before counting anew.
        min_lr: the learning rate does not go below this.

    Raises:
        ValueError: for a `factor` of 1 or more.

    >>> reduce = keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=2)
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile(keras.optimizers.SGD(0.5), "mse")
    >>> x, y = np.zeros((4, 2)), np.zeros((4, 1))
    >>> history = model.fit(x, y, epochs=5, callbacks=[reduce], verbose=0)
    >>> history.history["learning_rate"]
    [0.5, 0.5, 0.5, 0.25, 0.25]
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 0,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(monitor, mode, min_delta=min_delta)
        if factor >= 1.0:
            raise ValueError(
                "The factor of ReduceLROnPlateau has to be less than 1, so that the learning rate "
                f"goes down. Received: factor={factor}"
            )
        self.factor = factor
        self.min_lr = min_lr
        self.patience = patience
        self.verbose = verbose
        self.cooldown = cooldown
        self._start()

    def _start(self) -> None:
        self.wait = 0
        self.cooldown_counter = 0
        self.best = None

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._start()

    def state_dict(self) -> dict[str, Any]:
        return {"wait": self.wait, "cooldown_counter": self.cooldown_counter, "best": self.best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.wait, self.cooldown_counter = state["wait"], state["cooldown_counter"]
        self.best = state["best"]

    def in_cooldown(self) -> bool:
        """Tells whether a reduction is so recent that epochs do not count yet."""
        return self.cooldown_counter > 0

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if self.monitor_op is None:
            self._set_monitor_op()
        logs = {} if logs is None else logs
        logs.update(learning_rate_logs(self.model))
        current = logs.get(self.monitor)
        if current is None:
            warnings.warn(
                f"ReduceLROnPlateau watches '{self.monitor}', which is not in the logs. They have: "
                f"{', '.join(logs)}.",
                stacklevel=2,
            )
            return
        if self.in_cooldown():
            self.cooldown_counter -= 1
            self.wait = 0
        if self._is_improvement(current, self.best):
            self.best = current
            self.wait = 0
        elif not self.in_cooldown():
            self.wait += 1
            if self.wait >= self.patience and self._reduce(epoch):
                self.cooldown_counter = self.cooldown
                self.wait = 0

    def _reduce(self, epoch: int) -> bool:
        """Lowers the learning rates that are above their minimum; tells whether any was."""
        reduced = False
        for key, optimizer in optimizers_of(self.model):
            old = read_rate(optimizer)
            if old <= np.float32(self.min_lr):
                continue
            new = max(old * self.factor, self.min_lr)
            optimizer.learning_rate = new
            reduced = True
            if self.verbose > 0:
                name = "" if key == "learning_rate" else f" {optimizer.name}"
                print_msg(
                    f"\nEpoch {epoch + 1}: ReduceLROnPlateau reducing{name} learning rate to {new}."
                )
        return reduced

"""The base of callbacks that watch one value of the logs."""

import operator
import warnings
from collections.abc import Callable
from typing import Any

from kerascnn.callbacks.callback import Callback


class MonitorCallback(Callback):
    """Base class of callbacks that ask whether a monitored value got better.

    Args:
        monitor: the value's name in the logs.
        mode: `"min"`, `"max"`, or `"auto"`: the loss and losses as metrics go down, accuracies up.
        baseline: a value to be beaten from the start.
        min_delta: changes smaller than this are no improvement.

    Raises:
        ValueError: when values are first compared, where `"auto"` cannot tell the direction.

    >>> class Best(MonitorCallback):
    ...     def on_epoch_end(self, epoch, logs=None):
    ...         value = logs[self.monitor]
    ...         if self._is_improvement(value, self.best):
    ...             self.best = value
    >>> best = Best("loss")
    >>> for epoch, loss in enumerate([0.5, 0.75, 0.25]):
    ...     best.on_epoch_end(epoch, {"loss": loss})
    >>> best.best
    0.25
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        mode: str = "auto",
        baseline: float | None = None,
        min_delta: float = 0,
    ):
        super().__init__()
        if mode not in ("auto", "min", "max"):
            warnings.warn(
                f"{type(self).__name__} mode '{mode}' is unknown, 'auto' is used instead.",
                stacklevel=3,
            )
            mode = "auto"
        self.monitor = monitor
        self.mode = mode
        self.best = baseline
        self.min_delta = abs(min_delta)
        self.monitor_op: Callable[[Any, Any], bool] | None = None

    def _set_monitor_op(self) -> None:
        direction = {"min": "down", "max": "up"}.get(self.mode) or self._infer_direction()
        if direction is None:
            raise ValueError(
                f"{type(self).__name__} can't tell whether monitor='{self.monitor}' should go up "
                "or down. Pass mode='max' where higher is better, mode='min' where lower is."
            )
        self.monitor_op = operator.lt if direction == "down" else operator.gt
        self.min_delta = abs(self.min_delta) * (-1 if direction == "down" else 1)

    def _infer_direction(self) -> str | None:
        name = self.monitor.removeprefix("val_")
        if name == "loss":
            return "down"
        for metric in self.model._all_metrics():
            if metric.name == name and metric._direction:
                return metric._direction
        return None

    def _is_improvement(self, value: float, reference: float | None) -> bool:
        if reference is None:
            return True
        if self.monitor_op is None:
            self._set_monitor_op()
        assert self.monitor_op is not None
        return self.monitor_op(value - self.min_delta, reference)

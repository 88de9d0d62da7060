"""Sets a learning rate for each epoch."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kerascnn.callbacks.callback import Callback
from kerascnn.callbacks.learning_rates import learning_rate_logs, optimizers_of, read_rate
from kerascnn.utils.io_utils import print_msg


class LearningRateScheduler(Callback):
    """Sets the learning rate at the beginning of every epoch; compiles nothing anew.

    Args:
        schedule: a function of the epoch (from 0) and the current learning rate that returns the
            new learning rate, a float.
        verbose: 1 prints the new rate.

    Raises:
        ValueError: where the schedule returns something else than a float.

    >>> halve = keras.callbacks.LearningRateScheduler(lambda epoch, lr: lr / 2 if epoch else lr)
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile(keras.optimizers.SGD(0.5), "mse")
    >>> _ = model.fit(np.zeros((4, 2)), np.zeros((4, 1)), epochs=3, callbacks=[halve], verbose=0)
    >>> float(model.optimizer.learning_rate.numpy())
    0.125
    """

    def __init__(self, schedule: Callable[..., float], verbose: int = 0):
        super().__init__()
        self.schedule = schedule
        self.verbose = verbose

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        for key, optimizer in optimizers_of(self.model):
            rate = self._rate(epoch, optimizer)
            optimizer.learning_rate = rate
            if self.verbose > 0:
                name = "" if key == "learning_rate" else f"{optimizer.name} "
                print_msg(
                    f"\nEpoch {epoch + 1}: LearningRateScheduler setting {name}learning rate to "
                    f"{rate}."
                )

    def _rate(self, epoch: int, optimizer: Any) -> float:
        if not hasattr(optimizer, "learning_rate"):
            raise ValueError(
                f"LearningRateScheduler needs an optimizer with a learning rate. Received: "
                f"{optimizer!r}"
            )
        try:
            rate = self.schedule(epoch, read_rate(optimizer))
        except TypeError:  # this schedule takes the epoch alone
            rate = self.schedule(epoch)
        if not isinstance(rate, (float, np.floating)):
            raise ValueError(
                "The schedule of a LearningRateScheduler has to return a float. "
                f"Received: {rate!r} for epoch {epoch}"
            )
        return float(rate)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        if logs is not None:
            logs.update(learning_rate_logs(self.model))

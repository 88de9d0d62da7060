"""Stops when the loss is no longer a number."""

import math

from kerascnn.callbacks.callback import Callback
from kerascnn.utils.io_utils import print_msg


class TerminateOnNaN(Callback):
    """Stops training when the loss becomes NaN or infinite.

    The device notes the first such step, so this costs no return to Python in each step: training
    stops at the end of the steps that were under way, a fraction of a second later.

    Args:
        raise_error: whether to raise `RuntimeError` instead of stopping quietly.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x, y = np.full((4, 2), np.inf), np.zeros((4, 1))
    >>> stop = keras.callbacks.TerminateOnNaN()
    >>> len(model.fit(x, y, epochs=3, callbacks=[stop], verbose=0).epoch)
    Batch 0: Invalid loss, terminating training
    1
    """

    def __init__(self, raise_error: bool = False):
        super().__init__()
        self.raise_error = raise_error

    def uses_batch_hooks(self, kind: str) -> bool:
        return False

    def on_batch_end(self, batch: int, logs: dict | None = None) -> None:
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(loss):
            self.on_invalid_loss(batch)

    def on_invalid_loss(self, batch: int) -> None:
        """Called after a step that made the loss NaN or infinite."""
        if self.raise_error:
            raise RuntimeError(
                f"The loss became NaN or infinite at batch {batch}; training was ended."
            )
        if not self.model.stop_training:
            print_msg(f"Batch {batch}: Invalid loss, terminating training")
        self.model.stop_training = True

"""A callback made of functions."""

from collections.abc import Callable
from typing import Any

from kerascnn.callbacks.callback import Callback


class LambdaCallback(Callback):
    """Calls functions at the beginnings and ends that they are given for.

    Functions for batches make `fit` run step by step; see `Callback`.

    Args:
        on_epoch_begin: a function of `(epoch, logs)`.
        on_epoch_end: a function of `(epoch, logs)`.
        on_train_begin: a function of `logs`.
        on_train_end: a function of `logs`.
        on_train_batch_begin: a function of `(batch, logs)`.
        on_train_batch_end: a function of `(batch, logs)`.
        **kwargs: a function for any other hook of `Callback`, by its name.

    >>> epochs = []
    >>> note = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(epoch))
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x, y = np.zeros((4, 2)), np.zeros((4, 1))
    >>> _ = model.fit(x, y, epochs=3, callbacks=[note], verbose=0)
    >>> epochs
    [0, 1, 2]
    """

    def __init__(
        self,
        on_epoch_begin: Callable[..., Any] | None = None,
        on_epoch_end: Callable[..., Any] | None = None,
        on_train_begin: Callable[..., Any] | None = None,
        on_train_end: Callable[..., Any] | None = None,
        on_train_batch_begin: Callable[..., Any] | None = None,
        on_train_batch_end: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.__dict__.update(kwargs)
        hooks = {
            "on_epoch_begin": on_epoch_begin,
            "on_epoch_end": on_epoch_end,
            "on_train_begin": on_train_begin,
            "on_train_end": on_train_end,
            "on_train_batch_begin": on_train_batch_begin,
            "on_train_batch_end": on_train_batch_end,
        }
        self.__dict__.update({name: hook for name, hook in hooks.items() if hook is not None})

"""Checks arguments of fit, evaluate and predict, and sets up and cleans up a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kerascnn import _core, config, seed_generators
from kerascnn.callbacks.callback_list import CallbackList
from kerascnn.tracebacks import warn
from kerascnn.training.data import ArrayData, check_positive_int
from kerascnn.training.streams import BatchStream


class Running:
    """Surrounds running steps; after an interruption it tidies display, device and workers."""

    def __init__(self, model: Any, callbacks: CallbackList, feeds: Iterable[Any]):
        self._model = model
        self._callbacks = callbacks
        self._feeds = feeds
        self._metrics = model._finding_metrics_once()

    def __enter__(self) -> None:
        self._metrics.__enter__()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._metrics.__exit__(None, None, None)
        try:
            if kind is not None:
                self._synchronize(kind)  # steps may be reading memory of other libraries
        finally:
            self._close_feeds(kind is None)
            if kind is not None:
                self._callbacks.close()
        if kind is not None:
            # Steps under way on a GPU end before anybody reads the weights.
            self._synchronize(kind)

    def _synchronize(self, kind: Any) -> None:
        state = self._model._state
        for device in (state.device, *(other.device for other in state.others)):
            try:
                _core.synchronize(device)
            except _core.DeviceError:
                if not issubclass(kind, _core.DeviceError):
                    raise
                # The error that is on its way says what happened to the device.

    def _close_feeds(self, ended: bool) -> None:
        for feed in self._feeds:
            feed.close()
            if ended:
                self._model._state.kept_feeds.put_back(feed)


def make_shuffler() -> np.random.Generator:
    """Makes the generator of a fit's orders; `keras.utils.set_random_seed` makes them repeat."""
    return np.random.default_rng(seed_generators.make_default_seed())


def standardize_verbosity(verbose: Any) -> int:
    if verbose == "auto":
        return 1
    if verbose not in (0, 1, 2):
        raise ValueError(f"verbose must be 'auto', 0, 1 or 2. Received: verbose={verbose!r}")
    return int(verbose)


def standardize_batch_size(
    batch_size: Any, data: ArrayData | BatchStream, steps: Any, steps_name: str
) -> int:
    """Returns the samples per step; sources that give batches do not need it."""
    if steps is not None:
        check_positive_int(steps_name, steps)
    elif isinstance(data, BatchStream) and data.is_endless:
        raise ValueError(
            f"The {data.name} repeats without end: pass `{steps_name}`, how many of its batches to "
            "take."
        )
    if batch_size is None and isinstance(data, ArrayData):
        return -(-data.num_samples // steps) if steps else 32
    return check_positive_int("batch_size", 32 if batch_size is None else batch_size)


def check_epochs(epochs: Any, initial_epoch: Any, validation_freq: Any, shuffle: Any) -> None:
    # As in Keras 0 epochs train nothing: a script may leave out a stage so.
    if isinstance(epochs, bool) or not isinstance(epochs, (int, np.integer)) or epochs < 0:
        raise ValueError(f"epochs must be an integer from 0 on. Received: epochs={epochs!r}")
    if isinstance(initial_epoch, bool) or not isinstance(initial_epoch, int) or initial_epoch < 0:
        raise ValueError(f"initial_epoch must be 0 or more. Received: {initial_epoch!r}")
    if not isinstance(validation_freq, (int, list, tuple, set)) or validation_freq == 0:
        raise ValueError(
            "validation_freq must be an integer from 1 on or a list of epochs. Received: "
            f"validation_freq={validation_freq!r} of type {type(validation_freq).__name__}"
        )
    if shuffle is not None and not isinstance(shuffle, (bool, np.bool_)):
        raise ValueError(f"shuffle must be True or False. Received: shuffle={shuffle!r}")


def limit_epochs(epochs: int) -> int:
    """Limits `epochs` to `config.max_epochs`."""
    most = config.max_epochs()
    if not most or most >= epochs:
        return epochs
    warn(f"Limiting epochs to {most}")
    return most


def limit_steps(steps: int | None, num_batches: int | None) -> int | None:
    """Limits `steps`, or the number of batches, to `config.max_steps_per_epoch`."""
    most = config.max_steps_per_epoch()
    known = steps or num_batches
    if not most or (known is not None and most >= known):
        return steps
    warn(f"Limiting steps_per_epoch to {most}")
    return most

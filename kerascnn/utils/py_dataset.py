"""Data sets written in Python, a batch at a time, with workers that prepare batches ahead."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any


class PyDataset:
    """Base class of data sets that make whole batches in Python.

    A subclass implements `__getitem__(index)`, which returns a batch, and `__len__` or the property
    `num_batches`. `fit`, `evaluate` and `predict` ask for batches, with more than one worker in
    several at a time; what the model sees is in order all the same.

    Args:
        workers: how many threads or processes prepare batches; with up to 1 thread batches are
            made in the main thread.
        use_multiprocessing: whether workers are processes. They are started anew for each pass
            over the data, as copies of this process where the system can fork, so that they see
            what `on_epoch_end` changed. `__getitem__` should then use NumPy and other plain
            libraries rather than `kerascnn.ops`.
        max_queue_size: how many batches may be ready or on their way.

    Example:

    >>> class Squares(keras.utils.PyDataset):
    ...     def __len__(self):
    ...         return 3
    ...     def __getitem__(self, index):
    ...         x = np.full((4, 2), index, "float32")
    ...         return x, x.sum(axis=1) ** 2
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> history = model.fit(Squares(workers=2), epochs=2, verbose=0)
    >>> history.epoch
    [0, 1]
    """

    def __init__(
        self, workers: int = 1, use_multiprocessing: bool = False, max_queue_size: int = 10
    ) -> None:
        self._workers = workers
        self._use_multiprocessing = use_multiprocessing
        self._max_queue_size = max_queue_size

    def _option(self, name: str, default: Any) -> Any:
        if name not in vars(self):
            warnings.warn(
                f"`super().__init__(**kwargs)` was not called in the `__init__` of "
                f"{type(self).__name__}: call it there, with `workers`, `use_multiprocessing` and "
                "`max_queue_size` among its arguments. `fit` does not take them.",
                stacklevel=3,
            )
            PyDataset.__init__(self)
        return getattr(self, name, default)

    @property
    def workers(self) -> int:
        """How many threads or processes prepare batches."""
        return self._option("_workers", 1)

    @workers.setter
    def workers(self, value: int) -> None:
        self._workers = value

    @property
    def use_multiprocessing(self) -> bool:
        """Whether workers are processes."""
        return self._option("_use_multiprocessing", False)

    @use_multiprocessing.setter
    def use_multiprocessing(self, value: bool) -> None:
        self._use_multiprocessing = value

    @property
    def max_queue_size(self) -> int:
        """How many batches may be ready or on their way."""
        return self._option("_max_queue_size", 10)

    @max_queue_size.setter
    def max_queue_size(self, value: int) -> None:
        self._max_queue_size = value

    def __getitem__(self, index: int) -> Any:
        """A batch: `(x,)`, `(x, y)` or `(x, y, sample_weight)`, an array or a dictionary."""
        raise NotImplementedError(f"{type(self).__name__} must implement __getitem__(index).")

    def __iter__(self) -> Iterator[Any]:
        try:
            count = self.num_batches
        except NotImplementedError:
            count = None
        for index in itertools.count() if count is None else range(count):
            yield self[index]

    @property
    def num_batches(self) -> int | None:
        """The number of batches, by default the length; `None` where there is no end.

        Raises:
            NotImplementedError: where a subclass has neither this nor `__len__`.
        """
        if hasattr(self, "__len__"):
            return len(self)
        raise NotImplementedError(
            f"{type(self).__name__} must implement `__len__` or the property `num_batches`, which "
            "may be None for data without an end."
        )

    def on_epoch_begin(self) -> None:
        """Called before each epoch."""

    def on_epoch_end(self) -> None:
        """Called after each epoch, and once before the first: change or shuffle the data here."""


Sequence = PyDataset

"""Sources that give whole batches: generators, `PyDataset`s, DataLoaders, other iterables."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from kerascnn.data import INFINITE_CARDINALITY, Dataset
from kerascnn.training.data import ArrayData, check_class_weight

# Keras reads so many batches of a generator before training, and starts with them each time.
_KEPT_BATCHES = 2


class BatchStream:
    """Batches one after another; subclasses define the source.

    Args:
        name: what the source is called in errors.
        class_weight: weights of the classes, made sample weights of each batch.
    """

    def __init__(self, name: str, class_weight: dict | None = None):
        self.name = name
        self.class_weight = class_weight
        if class_weight is not None:
            check_class_weight(class_weight)

    @property
    def num_batches(self) -> int | None:
        """Returns the number of batches of a pass, or `None` if it is unknown or endless."""
        return None

    @property
    def runs_once(self) -> bool:
        """Tells whether the source gives each batch only once."""
        return False

    @property
    def is_endless(self) -> bool:
        """Tells whether the source says that a pass has no end."""
        return False

    def begin(self) -> Iterator[Any]:
        """Returns an iterator over the batches of a new pass."""
        raise NotImplementedError

    def on_epoch_begin(self) -> None:
        """Runs when an epoch begins."""

    def on_epoch_end(self) -> None:
        """Runs when an epoch has ended."""

    def read(self, batch: Any, one_length: bool = True) -> ArrayData:
        """A batch of the source as checked arrays.

        Args:
            batch: what the source gave.
            one_length: whether all arrays have to have as many samples.

        Raises:
            ValueError: for something that is no batch.
        """
        x, y, sample_weight = (*self.parts_of(batch), None, None)[:3]
        data = ArrayData(x, y, sample_weight, one_length)
        if self.class_weight is not None and data.y is not None:
            data.weigh_classes(self.class_weight)
        return data

    def parts_of(self, batch: Any) -> tuple:
        """A batch of the source as `(x,)`, `(x, y)` or `(x, y, sample_weight)`.

        Raises:
            ValueError: for something that is no batch.
        """
        if isinstance(batch, list):
            batch = tuple(batch)
        if not isinstance(batch, tuple):
            return (batch,)
        if len(batch) not in (1, 2, 3):
            raise ValueError(
                f"A batch of the {self.name} must be (x,), (x, y) or (x, y, sample_weight). "
                f"Received a tuple of {len(batch)}."
            )
        return batch


class GeneratorStream(BatchStream):
    """A generator, or another iterator: its batches come once, apart from the first two.

    As in Keras, a run begins with the first two batches again, also where the generator has gone
    further since.
    """

    def __init__(self, generator: Iterator[Any]):
        super().__init__("generator")
        self._first = list(itertools.islice(generator, _KEPT_BATCHES))
        self._rest = generator
        if not self._first:
            raise ValueError(
                "The generator is empty: it must yield at least one batch, (x,), (x, y) or "
                "(x, y, sample_weight)."
            )
        self.parts_of(self._first[0])

    @property
    def runs_once(self) -> bool:
        return True

    def begin(self) -> Iterator[Any]:
        return itertools.chain(self._first, self._rest)

    def parts_of(self, batch: Any) -> tuple:
        if not isinstance(batch, tuple):
            raise ValueError(
                "The generator must yield tuples (x,), (x, y) or (x, y, sample_weight). Received: "
                f"{type(batch).__name__}"
            )
        return super().parts_of(batch)


class IterableStream(BatchStream):
    """A repeatable iterable, such as a PyTorch DataLoader."""

    def __init__(self, iterable: Iterable[Any], name: str, class_weight: dict | None = None):
        super().__init__(name, class_weight)
        self._iterable = iterable

    @property
    def num_batches(self) -> int | None:
        # The `__len__` of a loader whose data has no length raises an error.
        with contextlib.suppress(TypeError, NotImplementedError):
            return len(self._iterable)  # type: ignore[arg-type]
        return None

    @property
    def is_endless(self) -> bool:
        source = self._iterable
        return isinstance(source, Dataset) and source.cardinality() == INFINITE_CARDINALITY

    def begin(self) -> Iterator[Any]:
        return iter(self._iterable)


class PyDatasetStream(BatchStream):
    """A `PyDataset`, with workers where it asks for them.

    Args:
        dataset: the data set.
        shuffle: whether each pass takes the batches in a new order.
        class_weight: see `BatchStream`.
    """

    def __init__(self, dataset: Any, shuffle: bool, class_weight: dict | None = None):
        super().__init__("PyDataset", class_weight)
        self._dataset = dataset
        self._shuffle = shuffle

    @property
    def num_batches(self) -> int | None:
        return self._dataset.num_batches

    def begin(self) -> Iterator[Any]:
        dataset = self._dataset
        workers = dataset.workers
        if workers > 1 or (workers > 0 and dataset.use_multiprocessing):
            from kerascnn.training.workers import PreparedBatches  # importing executors is slow

            return PreparedBatches(
                dataset,
                self._indices(),
                workers,
                dataset.use_multiprocessing,
                dataset.max_queue_size,
            )
        return (dataset[index] for index in self._indices())

    def _indices(self) -> Iterator[int]:
        """Yields the batches of a pass; the order is drawn when the first one is requested."""
        count = self.num_batches
        if count is None:
            yield from itertools.count()
            return
        indices = list(range(count))
        if self._shuffle:
            # Keras draws from this generator, so that one seed gives the same order in both.
            random.shuffle(indices)
        yield from indices

    def on_epoch_begin(self) -> None:
        self._dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._dataset.on_epoch_end()

    def parts_of(self, batch: Any) -> tuple:
        if not isinstance(batch, (dict, np.ndarray, list, tuple)):
            raise ValueError(
                f"{type(self._dataset).__name__}.__getitem__ must return (x,), (x, y) or (x, y, "
                f"sample_weight), or a dictionary. Received: {type(batch).__name__}"
            )
        return super().parts_of(batch)


class PreparedStream(BatchStream):
    """Another stream's batches, with inputs that are prepared on the host.

    Args:
        stream: the other one.
        prepare: makes arrays of a batch's inputs.
    """

    def __init__(self, stream: BatchStream, prepare: Callable[[Any], Any]):
        super().__init__(stream.name, stream.class_weight)
        self._stream = stream
        self._prepare = prepare

    @property
    def num_batches(self) -> int | None:
        return self._stream.num_batches

    @property
    def runs_once(self) -> bool:
        return self._stream.runs_once

    @property
    def is_endless(self) -> bool:
        return self._stream.is_endless

    def begin(self) -> Iterator[Any]:
        batches = self._stream.begin()
        try:
            for batch in batches:
                x, *rest = self._stream.parts_of(batch)
                yield (self._prepare(x), *rest)
        finally:
            close = getattr(batches, "close", None)
            if close is not None and not self.runs_once:
                close()

    def on_epoch_begin(self) -> None:
        self._stream.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._stream.on_epoch_end()

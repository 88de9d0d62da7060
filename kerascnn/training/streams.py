"""Sources that give whole batches: generators, `PyDataset`s, DataLoaders, other iterables."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from kerascnn.data import INFINITE_CARDINALITY, Dataset
from kerascnn.data.indexed import IndexedDataset
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

    def begin(self, first: int = 0) -> Iterator[Any]:
        """Returns an iterator over the batches of a new pass.

        Args:
            first: the batch to begin with. Those before are made and left out where the source
                has no numbers for its batches.
        """
        raise NotImplementedError

    def begin_own(
        self, rows: Callable[[int], slice], first: int
    ) -> Iterator[tuple[Any, int]] | None:
        """Begins a pass of some rows of each batch, where the source can make these alone.

        Args:
            rows: Chooses the rows of a batch by its size.
            first: The batch to begin with.

        Returns:
            An iterator over batches of these rows and the sizes of the whole batches, or `None`.
        """
        return None

    # Where the source is, for a training that goes on where another one was interrupted.

    @property
    def source(self) -> Any:
        """Returns what the user passed."""
        raise NotImplementedError

    def orders(self) -> list[Any]:
        """Returns what the source draws the orders of its next passes from."""
        return []

    def restore_orders(self, orders: list[Any]) -> None:
        """Brings back what `orders` returned."""

    def state_dict(self) -> Any:
        """Returns the state of a source that has one of its own, else None."""
        return self.source.state_dict() if has_state(self.source) else None

    def load_state_dict(self, state: Any) -> None:
        """Brings back the state of a source that has one of its own."""
        if state is not None and has_state(self.source):
            self.source.load_state_dict(state)

    @property
    def goes_on_by_itself(self) -> bool:
        """Tells whether a pass of the source, its state loaded, begins where another one was."""
        return has_state(self.source)

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

    @property
    def source(self) -> Any:
        return self._rest

    def begin(self, first: int = 0) -> Iterator[Any]:
        if self.goes_on_by_itself and first:
            return self._rest
        return _without(itertools.chain(self._first, self._rest), first)

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

    @property
    def source(self) -> Any:
        return self._iterable

    def orders(self) -> list[Any]:
        return [generator.bit_generator.state for generator in self._generators()]

    def restore_orders(self, orders: list[Any]) -> None:
        for generator, state in zip(self._generators(), orders, strict=True):
            generator.bit_generator.state = state

    def _generators(self) -> list[np.random.Generator]:
        return self._iterable._generators() if isinstance(self._iterable, Dataset) else []

    def begin(self, first: int = 0) -> Iterator[Any]:
        if isinstance(self._iterable, Dataset):
            return self._iterable._begin_at(first)
        return _without(iter(self._iterable), 0 if self.goes_on_by_itself else first)

    def begin_own(
        self, rows: Callable[[int], slice], first: int
    ) -> Iterator[tuple[Any, int]] | None:
        source = self._iterable
        if isinstance(source, IndexedDataset) and source.batch_size is not None:
            return source._begin_own(rows, first)
        return None


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

    @property
    def source(self) -> Any:
        return self._dataset

    def begin(self, first: int = 0) -> Iterator[Any]:
        dataset = self._dataset
        indices = self._indices()
        if first:
            # The order is drawn now, from where generators were when the pass began.
            indices = _without(indices, first)
        workers = dataset.workers
        if workers > 1 or (workers > 0 and dataset.use_multiprocessing):
            from kerascnn.training.workers import PreparedBatches  # importing executors is slow

            return PreparedBatches(
                dataset,
                indices,
                workers,
                dataset.use_multiprocessing,
                dataset.max_queue_size,
            )
        return (dataset[index] for index in indices)

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

    @property
    def source(self) -> Any:
        return self._stream.source

    def orders(self) -> list[Any]:
        return self._stream.orders()

    def restore_orders(self, orders: list[Any]) -> None:
        self._stream.restore_orders(orders)

    def begin(self, first: int = 0) -> Iterator[Any]:
        return self._prepared(self._stream.begin(first))

    def _prepared(self, batches: Iterator[Any]) -> Iterator[Any]:
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


def has_state(source: Any) -> bool:
    """Tells whether a source keeps a state of its own, as torchdata's `StatefulDataLoader` does."""
    return hasattr(source, "state_dict") and hasattr(source, "load_state_dict")


def _without(batches: Iterator[Any], first: int) -> Iterator[Any]:
    """Takes the batches before number `first`, and returns the iterator."""
    for _ in zip(range(first), batches, strict=False):
        pass
    return batches

"""Data sets whose samples have numbers: arrays, files, windows of a series."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from kerascnn import random, trees
from kerascnn.data import elements
from kerascnn.data.ahead import made_ahead
from kerascnn.data.dataset import Dataset, check_size


class Samples(Protocol):
    """What an `IndexedDataset` takes its samples from."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any:
        """Returns one sample."""

    def gather(self, indices: np.ndarray[Any, Any]) -> Any:
        """Returns several samples as a batch."""


class ArraySamples:
    """The rows of arrays of one length, nested in tuples and dictionaries.

    Raises:
        ValueError: for arrays without an axis or of different lengths.
    """

    def __init__(self, arrays: Any):
        leaves = trees.flatten(arrays)
        if not leaves or any(leaf.ndim == 0 for leaf in leaves):
            raise ValueError("Arrays with an axis of samples are needed; a single value has none.")
        lengths = [len(leaf) for leaf in leaves]
        if len(set(lengths)) != 1:
            raise ValueError(f"The arrays must have the same length. Received: {lengths}")
        self._arrays = arrays
        self._length = lengths[0]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return trees.map_structure(lambda array: array[index], self._arrays)

    def gather(self, indices: np.ndarray[Any, Any]) -> Any:
        """Returns the rows with these numbers."""
        return trees.map_structure(lambda array: array[indices], self._arrays)


class FileSamples:
    """What a function reads from files, with labels.

    Args:
        paths: The files.
        labels: An array with a row for each, or None.
        read: Makes an array of a path.
        stack: Makes a batch of arrays; by default they must have one shape.
        skips: Whether files that `read` raises a ValueError for are left out of batches.

    Attributes:
        skipped: What has been left out so far: the reasons by path.
    """

    def __init__(
        self,
        paths: Sequence[str],
        labels: Any,
        read: Callable[[str], Any],
        stack: Callable[[list[Any]], Any] = elements.stacked,
        skips: bool = False,
    ):
        self._paths, self._labels = paths, labels
        self._read, self._stack = read, stack
        self.skips = skips
        self.skipped: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Any:
        content = self._read(self._paths[index])
        return content if self._labels is None else (content, self._labels[index])

    def gather(self, indices: np.ndarray[Any, Any]) -> Any:
        """Returns the contents of some files as a batch.

        Raises:
            ValueError: for a file that cannot be read, or where all of them are left out.
        """
        if self.skips:
            found = [(index, self._read_or_skip(self._paths[index])) for index in indices]
            found = [(index, content) for index, content in found if content is not None]
            if not found:
                raise ValueError(
                    f"None of the {len(indices)} files of a batch can be read. The first: "
                    f"{self.skipped[self._paths[indices[0]]]}"
                )
            indices, read = np.array([index for index, _ in found]), [c for _, c in found]
        else:
            read = [self._read(self._paths[index]) for index in indices]
        contents = self._stack(read)
        return contents if self._labels is None else (contents, self._labels[indices])

    def _read_or_skip(self, path: str) -> Any:
        try:
            return self._read(path)
        except ValueError as error:
            if not self.skipped:
                warnings.warn(
                    f"Left out: {error} What else is left out is only noted in `skipped_files`.",
                    stacklevel=2,
                )
            self.skipped[path] = str(error)
            return None


class IndexedDataset(Dataset):
    """Samples alone or in batches, in order or shuffled as a whole before each pass.

    Args:
        samples: Where they come from.
        batch_size: None for single samples.
        shuffle: Whether each pass has another order.
        seed: Of the orders.
        workers: How many threads make samples or batches ahead; 0 for none.
        drop_remainder: Whether a last, smaller batch is left out.

    Attributes:
        file_paths: The files that samples are read from, if there are any.
        skipped_files: The files that were left out so far, with the reasons.
        class_names: The names of the classes; None without labels.
        num_classes: How many there are, 0 without labels.
    """

    file_paths: list[str]

    def __init__(
        self,
        samples: Samples,
        batch_size: int | None = None,
        shuffle: bool = False,
        seed: int | None = None,
        workers: int = 0,
        drop_remainder: bool = False,
    ):
        self.batch_size = None if batch_size is None else check_size("batch_size", batch_size)
        self._samples = samples
        self._shuffle = shuffle
        self._seed = seed
        self._orders = np.random.default_rng(seed) if shuffle else None
        self._order: np.ndarray[Any, Any] = np.arange(len(samples))
        self._workers = workers
        self._drop_remainder = drop_remainder

    @property
    def skipped_files(self) -> dict[str, str]:
        """The files that could not be read and were left out of their batches, with the reasons."""
        return dict(getattr(self._samples, "skipped", {}))

    @property
    def num_classes(self) -> int:
        """How many classes there are, 0 without labels."""
        return len(self.class_names) if self.class_names else 0

    def cardinality(self) -> int:
        count, size = len(self._samples), self.batch_size or 1
        return count // size if self._drop_remainder else -(-count // size)

    @property
    def element_spec(self) -> Any:
        if not len(self._samples):
            raise ValueError("The data set is empty: nothing is known of its elements.")
        spec = elements.spec_of(self._samples[0])
        if self.batch_size is None:
            return spec
        return elements.with_leading(spec, self.batch_size if self._drop_remainder else None)

    def __getitem__(self, index: int) -> Any:
        """A sample or a batch, in the order of the pass that was begun last."""
        return self._at(index, self._order)

    def _at(
        self,
        index: int,
        order: np.ndarray[Any, Any],
        rows: Callable[[int], slice] | None = None,
    ) -> Any:
        if not 0 <= index < len(self):
            kind = "samples" if self.batch_size is None else "batches"
            raise IndexError(f"There are {len(self)} {kind}. Received: index={index}")
        if self.batch_size is None:
            return self._samples[int(order[index])]
        chosen = order[index * self.batch_size : (index + 1) * self.batch_size]
        if rows is None:
            return self._samples.gather(chosen)
        if getattr(self._samples, "skips", False):
            raise ValueError(
                '`on_error="skip"` cannot be used where several processes share batches: none '
                "would know how many samples the others have. Remove or replace the files that "
                "cannot be read, of which one process alone makes a list in `skipped_files`."
            )
        return self._samples.gather(chosen[rows(len(chosen))]), len(chosen)

    def _generators(self) -> list[np.random.Generator]:
        return [] if self._orders is None else [self._orders]

    def _begin(self) -> Iterator[Any]:
        # The order is drawn when the first element is asked for.
        yield from self._elements(self._draw_order(), 0)

    def _begin_at(self, first: int) -> Iterator[Any]:
        return self._elements(self._draw_order(), first) if first else self._begin()

    def _begin_own(self, rows: Callable[[int], slice], first: int) -> Iterator[tuple[Any, int]]:
        """Begins a pass of batches of which only some rows are made, and their sizes with all rows.

        Args:
            rows: Chooses the rows of a batch by its size.
            first: The batch to begin with.
        """
        yield from self._elements(self._draw_order(), first, rows)

    def _draw_order(self) -> np.ndarray[Any, Any]:
        if self._orders is not None:
            self._order = self._orders.permutation(len(self._samples))
        return self._order

    def _elements(
        self,
        order: np.ndarray[Any, Any],
        first: int,
        rows: Callable[[int], slice] | None = None,
    ) -> Iterator[Any]:
        indices = range(first, len(self))
        if not self._workers:
            yield from (self._at(index, order, rows) for index in indices)
            return
        made = made_ahead(lambda i: self._at(i, order, rows), indices, self._workers, self._workers)
        with contextlib.closing(made):
            yield from made

    def _like(self, **changes: Any) -> IndexedDataset:
        """Returns a data set with the same samples and other settings."""
        arguments = {
            "batch_size": self.batch_size,
            "shuffle": self._shuffle,
            "seed": self._seed,
            "workers": self._workers,
            "drop_remainder": self._drop_remainder,
        }
        made = IndexedDataset(self._samples, **{**arguments, **changes})
        made.class_names = self.class_names
        if hasattr(self, "file_paths"):
            made.file_paths = self.file_paths
        return made

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Dataset:
        """See `Dataset.batch`. Rows of arrays are gathered at once."""
        if self.batch_size is not None:
            return super().batch(batch_size, drop_remainder)
        return self._like(batch_size=batch_size, drop_remainder=drop_remainder)

    def unbatch(self, name: str | None = None) -> Dataset:
        """See `Dataset.unbatch`."""
        if self.batch_size is None or self._drop_remainder:
            return super().unbatch()
        return self._like(batch_size=None)

    def shuffle(
        self,
        buffer_size: int | None,
        seed: int | None = None,
        reshuffle_each_iteration: bool = True,
        name: str | None = None,
    ) -> Dataset:
        """See `Dataset.shuffle`. A window over everything is a permutation."""
        whole = buffer_size is None or buffer_size >= len(self._samples)
        if (
            not whole
            or self.batch_size is not None
            or self._shuffle
            or not reshuffle_each_iteration
        ):
            return super().shuffle(buffer_size, seed, reshuffle_each_iteration)
        seed = random.make_default_seed() if seed is None else seed
        return self._like(shuffle=True, seed=seed)

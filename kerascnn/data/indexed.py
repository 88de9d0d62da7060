"""Data sets whose samples have numbers: arrays, files, windows of a series."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from kerascnn import seed_generators, trees
from kerascnn.data import elements
from kerascnn.data.ahead import made_ahead
from kerascnn.data.assembly import PIECE, Assembly
from kerascnn.data.cardinality import check_size
from kerascnn.data.dataset import Dataset
from kerascnn.data.device_assembly import DeviceAssembly

# So many batches are in the making while one is used.
_BATCHES_AHEAD = 2


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
        paths: The files: paths, or places in archives.
        labels: A row for each file, or None.
        read: Makes the content of a path; for several arrays of one shape they are a batch. May
            have a `writer`, which makes arrays of many paths at once (see `Assembly`), or a
            `gpu_decoder`, which makes batches on a GPU (see `DeviceAssembly`).
        stack: Makes a batch of contents that are no arrays of one shape.
        skips: Whether files that `read` raises a ValueError for are left out of batches.

    Attributes:
        skipped: What has been left out so far: the reasons by path.
    """

    def __init__(
        self,
        paths: Sequence[Any],
        labels: Any,
        read: Callable[[Any], Any],
        stack: Callable[[list[Any]], Any] = elements.stacked,
        skips: bool = False,
    ):
        self._paths, self._labels = paths, labels
        self._read, self._stack = read, stack
        self.skips = skips
        self.skipped: dict[str, str] = {}

    @property
    def are_on_gpu(self) -> bool:
        """Whether batches are made on a GPU, and single samples on the host."""
        return getattr(self._read, "gpu_decoder", None) is not None

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Any:
        content = self.read(index)
        return content if self._labels is None else (content, self._labels[index])

    def gather(self, indices: np.ndarray[Any, Any]) -> Any:
        """Returns the contents of some files as a batch.

        Raises:
            ValueError: for a file that cannot be read, or where all of them are left out.
        """
        assembly = self.assemble(indices)
        assembly.fill(range(len(indices)))
        return self.finished(assembly)

    def assemble(self, indices: np.ndarray[Any, Any]) -> Assembly:
        """Begins a batch that several threads make."""
        make = self.content if self.skips else self.read
        decoder = getattr(self._read, "gpu_decoder", None)
        writer = getattr(self._read, "writer", None) if decoder is None else None
        if decoder is None and writer is None:
            return Assembly(indices, make, self._stack)
        files = [self._paths[int(index)] for index in indices]
        if decoder is not None:
            return DeviceAssembly(indices, make, decoder, files)
        return Assembly(indices, make, self._stack, writer, files)

    def finished(self, assembly: Assembly) -> Any:
        """Returns a batch whose contents are made, with its labels.

        Without rows it has the shapes and dtypes of others, for which a file is read.

        Raises:
            ValueError: where all of its files are left out.
        """
        if not len(assembly.indices):
            return trees.map_structure(lambda x: x[:0], self._first_row())
        contents, indices = assembly.finish()
        if contents is None:
            first = str(self._paths[int(assembly.indices[0])])
            raise ValueError(
                f"None of the {len(assembly.indices)} files of a batch can be read. The first: "
                f"{self.skipped[first]}"
            )
        return contents if self._labels is None else (contents, self._labels[indices])

    def _first_row(self) -> Any:
        """Returns a batch of the first file that can be read."""
        for index in range(len(self)):
            try:
                return self.gather(np.array([index]))
            except ValueError:
                if not self.skips:
                    raise
        raise ValueError(
            "A batch without rows has the shape of others, and no file can be read, of "
            f"{len(self)}."
        )

    def read(self, index: int) -> Any:
        """Returns the content of a file without its label."""
        return self._read(self._paths[index])

    def content(self, index: int) -> Any:
        """Returns the same, or None for a file that cannot be read, which is noted."""
        try:
            return self.read(index)
        except ValueError as error:
            if not self.skipped:
                warnings.warn(
                    f"Left out: {error} What else is left out is only noted in `skipped_files`.",
                    stacklevel=2,
                )
            self.skipped[str(self._paths[index])] = str(error)
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
        order: The order of the samples where they are not shuffled; by default that of their
            numbers.

    Attributes:
        file_paths: The files that samples are read from, if there are any.
        skipped_files: The files that were left out so far, with the reasons.
        class_names: The names of the classes; None without labels.
        num_classes: How many there are, 0 without labels.
    """

    file_paths: Sequence[str]

    def __init__(
        self,
        samples: Samples,
        batch_size: int | None = None,
        shuffle: bool = False,
        seed: int | None = None,
        workers: int = 0,
        drop_remainder: bool = False,
        order: np.ndarray[Any, Any] | None = None,
    ):
        self.batch_size = None if batch_size is None else check_size("batch_size", batch_size)
        self._samples = samples
        self._shuffle = shuffle
        self._seed = seed
        self._orders = np.random.default_rng(seed) if shuffle else None
        self._order = np.arange(len(samples)) if order is None else order
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
        chosen, count = self._chosen(index, order, rows)
        batch = self._samples.gather(chosen)
        return batch if rows is None else (batch, count)

    def _chosen(
        self,
        index: int,
        order: np.ndarray[Any, Any],
        rows: Callable[[int], slice] | None,
    ) -> tuple[np.ndarray[Any, Any], int]:
        """Returns the samples of a batch, or those of some of its rows, and its size."""
        size = self.batch_size or 1
        chosen = order[index * size : (index + 1) * size]
        if rows is None:
            return chosen, len(chosen)
        if getattr(self._samples, "skips", False):
            raise ValueError(
                '`on_error="skip"` cannot be used where several processes share batches: none '
                "would know how many samples the others have. Remove or replace the files that "
                "cannot be read, of which one process alone makes a list in `skipped_files`."
            )
        return chosen[rows(len(chosen))], len(chosen)

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
        if self.batch_size is not None and hasattr(self._samples, "assemble"):
            yield from self._assembled(order, indices, rows)
            return
        made = made_ahead(lambda i: self._at(i, order, rows), indices, self._workers, self._workers)
        with contextlib.closing(made):
            yield from made

    def _assembled(
        self,
        order: np.ndarray[Any, Any],
        indices: range,
        rows: Callable[[int], slice] | None,
    ) -> Iterator[Any]:
        """Yields batches each of which all threads make together, those that come next included.

        The first one is there as soon as it can be, and few have to be in memory for all threads
        to have work.
        """
        samples: Any = self._samples

        def work() -> Iterator[tuple[Assembly, range, int]]:
            for index in indices:
                chosen, count = self._chosen(index, order, rows)
                assembly = samples.assemble(chosen)
                pieces = assembly.pieces() or [range(0)]
                for number, piece in enumerate(pieces, 1):
                    yield assembly, piece, count if number == len(pieces) else 0

        def fill(task: tuple[Assembly, range, int]) -> tuple[Assembly, int]:
            assembly, piece, count = task
            assembly.fill(piece)
            return assembly, count

        per_batch = -(-(self.batch_size or 1) // PIECE)
        ahead = _BATCHES_AHEAD * max(per_batch, self._workers)
        with contextlib.closing(made_ahead(fill, work(), self._workers, ahead)) as made:
            for assembly, count in made:
                if count:
                    batch = samples.finished(assembly)
                    yield batch if rows is None else (batch, count)

    def _like(self, **changes: Any) -> IndexedDataset:
        """Returns a data set with the same samples and other settings."""
        arguments = {
            "batch_size": self.batch_size,
            "shuffle": self._shuffle,
            "seed": self._seed,
            "workers": self._workers,
            "drop_remainder": self._drop_remainder,
            "order": None if self._shuffle else self._order,
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

    def cache(self, filename: str | os.PathLike[str] = "", name: str | None = None) -> Dataset:
        """See `Dataset.cache`. Samples of files are kept one by one."""
        if not isinstance(self._samples, FileSamples):
            return super().cache(filename)
        if self._samples.are_on_gpu:
            raise ValueError(
                '`cache()` keeps single images on the host, and `decoder="gpu"` makes batches on a '
                'GPU. Make the data set with `decoder="cpu"`: decoding happens once then.'
            )
        from kerascnn.data.cached import cached_files

        return cached_files(self, filename)

    def unbatch(self, name: str | None = None) -> Dataset:
        """See `Dataset.unbatch`."""
        are_on_gpu = getattr(self._samples, "are_on_gpu", False)  # as batches alone
        if self.batch_size is None or self._drop_remainder or are_on_gpu:
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
        seed = seed_generators.make_default_seed() if seed is None else seed
        return self._like(shuffle=True, seed=seed)

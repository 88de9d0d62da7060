"""Data sets whose elements are made once and then kept."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from kerascnn.data import passes
from kerascnn.data.dataset import Dataset
from kerascnn.data.indexed import FileSamples, IndexedDataset
from kerascnn.data.stores import FileStore, MemoryStore, Store
from kerascnn.data.tar_samples import SamplePlaces


class CachedFiles(FileSamples):
    """What a function reads from files, kept from the first time on that somebody asks for it.

    Args:
        samples: The files.
        store: Keeps their contents. Labels are in memory anyway.
    """

    def __init__(self, samples: FileSamples, store: Store):
        self.__dict__.update(samples.__dict__)
        self.skipped = dict(samples.skipped)
        self._store = store

    def read(self, index: int) -> Any:
        """See `FileSamples`."""
        content = self._store.get(index)
        if content is not None:
            return content
        try:
            content = super().read(index)
        except ValueError as error:
            if self.skips:
                self._store.put_error(index, str(error))
            raise
        self._store.put(index, content)
        return content


def cached_files(dataset: IndexedDataset, filename: str | os.PathLike[str]) -> IndexedDataset:
    """A data set of files as one whose contents are kept, in a file or, without a name, in memory.

    Each pass has the order of the first one; contents are kept one by one in whatever order passes
    ask for them, so that those that come next can be in any order too.
    """
    samples: Any = dataset._samples
    store: Store = MemoryStore()
    if os.fspath(filename):
        store = FileStore(filename, len(samples), identity_of(samples))
    order = dataset._order
    if dataset._orders is not None:
        order = copy.deepcopy(dataset._orders).permutation(len(samples))
    made = dataset._like(shuffle=False, order=order)
    made._samples = CachedFiles(samples, store)
    return made


def identity_of(samples: FileSamples) -> str:
    """Which files samples are made of and how: another text after one of them was changed."""
    total = hashlib.sha256()
    read = samples._read
    if dataclasses.is_dataclass(read):
        total.update(repr(read).encode())
    for path in samples._paths:
        total.update(_identity_of_file(path).encode())
    return total.hexdigest()


def _identity_of_file(path: Any) -> str:
    if isinstance(path, str):
        status = os.stat(path)
        return f"{os.path.basename(path)}\0{status.st_size}\0{status.st_mtime_ns}\n"
    if isinstance(path, SamplePlaces):
        return "".join(map(_identity_of_file, path.places))
    return f"{os.path.basename(path.shard)}\0{path.name}\0{path.offset}\0{path.changed}\n"


class CachedDataset(Dataset):
    """The elements of another data set, kept from the end of the first whole pass on.

    Args:
        source: The other one.
        filename: A file that keeps them; empty for memory.
    """

    def __init__(self, source: Dataset, filename: str | os.PathLike[str]):
        self._source = source
        self.class_names = source.class_names
        self._kept: list[Any] | None = None
        self._store = FileStore(filename, None, None) if os.fspath(filename) else None
        self._is_filled = False  # true while a pass is filling it
        self._first_orders: list[Any] | None = None

    @property
    def _is_complete(self) -> bool:
        return self._kept is not None or (self._store is not None and self._store.is_complete)

    def _generators(self) -> list[np.random.Generator]:
        return []  # later passes have the order of the first

    def cardinality(self) -> int:
        if self._kept is not None:
            return len(self._kept)
        if self._store is not None and self._store.is_complete:
            return len(self._store)
        return self._source.cardinality()

    @property
    def element_spec(self) -> Any:
        return super().element_spec if self._is_complete else self._source.element_spec

    def _begin(self) -> Iterator[Any]:
        return self._begin_at(0)

    def _begin_at(self, first: int) -> Iterator[Any]:
        if self._kept is not None:
            yield from itertools.islice(self._kept, first, None)
        elif self._store is not None and self._store.is_complete:
            for number in range(first, len(self._store)):
                yield self._store.get(number)
        else:
            yield from itertools.islice(self._first_pass(), first, None)

    def _first_pass(self) -> Iterator[Any]:
        generators = self._source._generators()
        if self._first_orders is None:
            self._first_orders = [g.bit_generator.state for g in generators]
        else:  # a pass that was not whole has drawn from them
            for generator, state in zip(generators, self._first_orders, strict=True):
                generator.bit_generator.state = state
        if self._is_filled:
            with passes.opened(self._source) as items:
                yield from items
            return
        self._is_filled, seen, count = True, [], 0
        try:
            with passes.opened(self._source) as items:
                for item in items:
                    if self._store is None:
                        seen.append(item)
                    else:
                        self._store.put(count, item)
                    count += 1
                    yield item
            if self._store is None:
                self._kept = seen
            else:
                self._store.finish(count)
        finally:
            self._is_filled = False
            if self._store is not None:
                self._store.drop()

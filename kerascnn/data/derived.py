"""Data sets that are made of functions and of other data sets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kerascnn import trees
from kerascnn.data import cardinality, elements, passes
from kerascnn.data.dataset import Dataset


class Source(Dataset):
    """Gives the elements of a function's iterator."""

    def __init__(self, begin: Callable[[], Iterator[Any]], count: int):
        self._make = begin
        self._count = count

    def _begin(self) -> Iterator[Any]:
        return self._make()

    def cardinality(self) -> int:
        return self._count


class Derived(Dataset):
    """A data set made of another.

    Args:
        source: The other one.
        begin: Makes a pass of it.
        count: Its cardinality, of that of the source; None where it is the same.
        spec: The same for the elements' spec; None where the elements have to tell.
    """

    def __init__(
        self,
        source: Dataset,
        begin: Callable[[Dataset], Iterator[Any]],
        count: Callable[[int], int] | None = None,
        spec: Callable[[Any], Any] | None = lambda spec: spec,
    ):
        self._source = source
        self._make = begin
        self._counted = count
        self._spec = spec
        self.class_names = source.class_names

    def _begin(self) -> Iterator[Any]:
        return self._make(self._source)

    def _generators(self) -> list[np.random.Generator]:
        own = self._make.orders if isinstance(self._make, passes.Shuffled) else None
        return [*self._source._generators(), *([] if own is None else [own])]

    def cardinality(self) -> int:
        count = self._source.cardinality()
        return count if self._counted is None else self._counted(count)

    @property
    def element_spec(self) -> Any:
        if self._spec is None:
            return super().element_spec
        return self._spec(self._source.element_spec)


class Mapped(Derived):
    """Gives what a function returns for elements."""

    @property
    def element_spec(self) -> Any:
        # A batch stays a batch: if the sizes of all parts are unknown, so are the results' sizes.
        before = trees.flatten(self._source.element_spec)
        found = elements.spec_of(self._first())
        if not all(spec.shape[:1] == (None,) for spec in before):
            return found

        def opened(spec: elements.TensorSpec) -> elements.TensorSpec:
            return elements.TensorSpec((None, *spec.shape[1:]), spec.dtype)

        return trees.map_structure(lambda s: opened(s) if s.shape else s, found)


class Zipped(Dataset):
    """Gives the elements of several data sets together."""

    def __init__(self, structure: Any):
        self._structure = structure
        self._parts = trees.flatten(structure)
        if not all(isinstance(part, Dataset) for part in self._parts):
            kinds = ", ".join(type(part).__name__ for part in self._parts)
            raise TypeError(f"Dataset.zip takes data sets. Received: {kinds}")

    def _begin(self) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            open_parts = [stack.enter_context(passes.opened(part)) for part in self._parts]
            for items in zip(*open_parts, strict=False):
                yield trees.pack_as(self._structure, list(items))

    def _generators(self) -> list[np.random.Generator]:
        return [generator for part in self._parts for generator in part._generators()]

    def cardinality(self) -> int:
        return cardinality.zipped([part.cardinality() for part in self._parts])

    @property
    def element_spec(self) -> Any:
        return trees.map_structure(lambda part: part.element_spec, self._structure)


class Joined(Dataset):
    """Gives the elements of one data set after those of another."""

    def __init__(self, first: Dataset, second: Dataset):
        self._parts = (first, second)
        self.class_names = first.class_names

    def _begin(self) -> Iterator[Any]:
        return passes.concatenate(*self._parts)

    def _generators(self) -> list[np.random.Generator]:
        return [generator for part in self._parts for generator in part._generators()]

    def cardinality(self) -> int:
        return cardinality.joined([part.cardinality() for part in self._parts])

    @property
    def element_spec(self) -> Any:
        return elements.merged(*(part.element_spec for part in self._parts))

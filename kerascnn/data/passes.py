"""What a single pass over a data set does with the elements of another."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kerascnn.data import elements
from kerascnn.data.ahead import made_ahead


@contextlib.contextmanager
def opened(source: Any) -> Iterator[Iterator[Any]]:
    """Opens a pass over a data set and stops its threads when the block is left."""
    begun = source._begin()
    try:
        yield begun
    finally:
        close = getattr(begun, "close", None)
        if close is not None:
            close()


def handed_out(begun: Iterator[Any]) -> Iterator[Any]:
    """Yields what a pass gives in the form that programs get; closing it closes the pass."""
    try:
        for item in begun:
            yield elements.handed_out(item)
    finally:
        close = getattr(begun, "close", None)
        if close is not None:
            close()


def take(source: Any, count: int) -> Iterator[Any]:
    """Yields the first elements and asks for no more."""
    with opened(source) as items:
        yield from items if count < 0 else itertools.islice(items, count)


def skip(source: Any, count: int) -> Iterator[Any]:
    """Yields all but the first elements, or none for a negative count."""
    with opened(source) as items:
        if count >= 0:
            yield from itertools.islice(items, count, None)


def shard(source: Any, count: int, index: int) -> Iterator[Any]:
    """Yields every `count`-th element."""
    with opened(source) as items:
        yield from itertools.islice(items, index, None, count)


def map_(source: Any, function: Callable[..., Any], workers: int) -> Iterator[Any]:
    """Yields a function's results for the elements, by several threads if `workers` asks."""
    with opened(source) as items:
        if workers > 1:
            apply = lambda item: elements.call(function, item)  # noqa: E731
            yield from made_ahead(apply, items, workers, workers)
            return
        for item in items:
            yield elements.call(function, item)


def filter_(source: Any, predicate: Callable[..., Any]) -> Iterator[Any]:
    """Yields the elements for which a function is true."""
    with opened(source) as items:
        for item in items:
            if bool(np.asarray(elements.call(predicate, item))):
                yield item


def batch(
    source: Any, size: int, drop_remainder: bool, stack: Callable[[list[Any]], Any]
) -> Iterator[Any]:
    """Yields batches of several elements."""
    with opened(source) as items:
        while chunk := list(itertools.islice(items, size)):
            if len(chunk) == size or not drop_remainder:
                yield stack(chunk)


def unbatch(source: Any) -> Iterator[Any]:
    """Yields the rows of each element."""
    with opened(source) as items:
        for item in items:
            yield from elements.rows(item)


class Shuffled:
    """A pass in random order: each element comes from a window of those that are next.

    Args:
        buffer_size: How many elements the window holds.
        seed: Of the orders.
        reshuffle: Whether each pass has another order.

    Attributes:
        orders: Draws the seed of each pass; None where all have the same.
    """

    def __init__(self, buffer_size: int, seed: int, reshuffle: bool):
        self._buffer_size = buffer_size
        self._seed = seed
        self.orders = np.random.default_rng(seed) if reshuffle else None

    def __call__(self, source: Any) -> Iterator[Any]:
        """One pass over `source`; its order is drawn when the first element is asked for."""
        seed = self._seed if self.orders is None else self.orders.integers(2**63)
        random = np.random.default_rng(seed)
        with opened(source) as items:
            window = list(itertools.islice(items, self._buffer_size))
            for item in items:
                at = int(random.integers(len(window)))
                yield window[at]
                window[at] = item
            random.shuffle(window)
            yield from window


def repeat(source: Any, count: int) -> Iterator[Any]:
    """Repeats passes, without end for a negative count."""
    for _ in itertools.count() if count < 0 else range(count):
        found = False
        with opened(source) as items:
            for item in items:
                found = True
                yield item
        if not found:
            return


def prefetch(source: Any, size: int) -> Iterator[Any]:
    """Yields the same elements, which a thread makes while earlier ones are used."""
    end = object()
    with opened(source) as items:
        results = made_ahead(lambda _: next(items, end), itertools.repeat(None), 1, size)
        with contextlib.closing(results):
            for item in results:
                if item is end:
                    return
                yield item


def concatenate(first: Any, second: Any) -> Iterator[Any]:
    """Yields the elements of one data set after those of another."""
    for source in (first, second):
        with opened(source) as items:
            yield from items


def enumerate_(source: Any, start: int) -> Iterator[Any]:
    """Yields elements with their numbers."""
    with opened(source) as items:
        for number, item in enumerate(items, start):
            yield np.int64(number), item

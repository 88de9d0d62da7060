"""Threads make results while the previous ones are used."""

from __future__ import annotations

import collections
import contextvars
import itertools
import os
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Future


# More threads than this would only wait for Python's lock.
_MOST_WORKERS = 32


def default_workers() -> int:
    """How many threads read files: one for each core that this process may use."""
    own = getattr(os, "sched_getaffinity", None)
    return min(_MOST_WORKERS, len(own(0)) if own else os.cpu_count() or 1)


def made_ahead(
    function: Callable[[Any], Any], items: Iterable[Any], workers: int, ahead: int
) -> Generator[Any, None, None]:
    """`map(function, items)` in order, with results made ahead by threads.

    Args:
        function: Runs in the threads, where the blocks of the caller (`keras.device`) hold too.
        items: Are taken in the caller's thread.
        workers: How many threads.
        ahead: How many results may be ready or under way.
    """
    from concurrent.futures import ThreadPoolExecutor  # this import is slow

    def submit(item: Any) -> Future[Any]:
        return pool.submit(contextvars.copy_context().run, function, item)

    source = iter(items)
    with ThreadPoolExecutor(workers, thread_name_prefix="Dataset") as pool:
        pending = collections.deque(map(submit, itertools.islice(source, ahead)))
        try:
            while pending:
                result = pending.popleft().result()
                pending.extend(map(submit, itertools.islice(source, 1)))
                yield result
        finally:
            for future in pending:
                future.cancel()

"""Batches of a `PyDataset`, which threads or processes make ahead, in order."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

# This is the data set of a worker process, which sets it when it starts.
_dataset: Any = None


def _set_dataset(dataset: Any) -> None:
    global _dataset
    _dataset = dataset


def _batch_in_process(index: int) -> Any:
    return _dataset[index]


class PreparedBatches:
    """Iterates over `dataset[index]` for each of `indices`, with several under way at a time.

    Args:
        dataset: the `PyDataset`.
        indices: which batches; may have no end.
        workers: how many threads or processes.
        use_multiprocessing: whether they are processes.
        max_queue_size: how many batches may be ready or under way.

    Raises:
        RuntimeError: while iterating, where a worker process died.
    """

    def __init__(
        self,
        dataset: Any,
        indices: Iterable[int],
        workers: int,
        use_multiprocessing: bool,
        max_queue_size: int,
    ):
        self._indices = iter(indices)
        self._name = type(dataset).__name__
        self._ahead = max(1, max_queue_size)
        self._pending: deque[Future] = deque()
        self._executor: Executor | None
        if use_multiprocessing:
            self._executor = ProcessPoolExecutor(
                workers, _process_context(), initializer=_set_dataset, initargs=(dataset,)
            )
            self._get = _batch_in_process
        else:
            self._executor = ThreadPoolExecutor(workers, thread_name_prefix="PyDataset")
            self._get = dataset.__getitem__

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._executor is None:
            raise StopIteration
        try:
            self._submit()
            if not self._pending:
                self.close()
                raise StopIteration
            return self._pending.popleft().result()
        except BrokenProcessPool as error:
            self.close()
            raise RuntimeError(
                f"A worker process of the data set {self._name} died before its batch was ready: "
                "it was killed (perhaps for its memory) or left Python. Fewer workers need less "
                "memory; with use_multiprocessing=False errors show where they happen."
            ) from error
        except BaseException:
            self.close()
            raise

    def _submit(self) -> None:
        assert self._executor is not None
        while len(self._pending) < self._ahead:
            try:
                index = next(self._indices)
            except StopIteration:
                return
            self._pending.append(self._executor.submit(self._get, index))

    def close(self) -> None:
        """Ends the workers after their current batches, and drops the rest."""
        if self._executor is not None:
            executor, self._executor = self._executor, None
            self._pending.clear()
            executor.shutdown(wait=False, cancel_futures=True)


def _process_context() -> Any:
    """Returns forks of this process if the system has them: then data sets need no pickling."""
    methods = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("fork" if "fork" in methods else None)

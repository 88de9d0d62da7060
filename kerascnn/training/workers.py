"""Batches of a `PyDataset`, which threads or processes make ahead, in order."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Any

# This is the data set of a worker process, which sets it when it starts.
_dataset: Any = None
_SECONDS_BETWEEN_LOOKS = 1.0


def _begin_process(dataset: Any) -> None:
    global _dataset
    _dataset = dataset
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this process where its parent was killed, and so tells it to end no more."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    # Processes that were forked later may keep the sentinel from telling of the parent's end.
    while not wait([parent.sentinel], _SECONDS_BETWEEN_LOOKS) and os.getppid() == parent.pid:
        pass
    os._exit(1)


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
            with self._clear_errors():
                self._executor = ProcessPoolExecutor(
                    workers, _process_context(), initializer=_begin_process, initargs=(dataset,)
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
            with self._clear_errors():
                self._pending.append(self._executor.submit(self._get, index))

    @contextlib.contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Surrounds what makes processes: those that were made before an error end."""
        before = set(multiprocessing.active_children())
        try:
            yield
        except OSError as error:
            for process in set(multiprocessing.active_children()) - before:
                process.terminate()
                process.join()
            raise OSError(
                error.errno,
                f"The data set {self._name} got no worker processes ({error.strerror}). They need "
                "memory, descriptors (`ulimit -n`) and room in shared memory (/dev/shm); with "
                "use_multiprocessing=False its workers are threads.",
            ) from error

    def close(self) -> None:
        """Ends the workers after their current batches, and drops the rest."""
        if self._executor is not None:
            executor, self._executor = self._executor, None
            self._pending.clear()
            # A process of `multiprocessing` that is about to end would close the queue by which its
            # workers are told to end, and then wait for them.
            ends_soon = multiprocessing.parent_process() is not None
            executor.shutdown(wait=ends_soon, cancel_futures=True)


def _process_context() -> Any:
    """Returns forks of this process if the system has them: then data sets need no pickling."""
    methods = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("fork" if "fork" in methods else None)

"""Which samples of a batch this process computes, where several train one model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerascnn import _core, trees
from kerascnn.distribution import replicas
from kerascnn.distribution.replicas import Replicas, Share
from kerascnn.training.data import ArrayData
from kerascnn.training.steps import PREDICT


def own_part(kind: str, data: ArrayData) -> tuple[ArrayData, Share | None]:
    """Returns the samples of one batch that this process computes, and its share.

    Where there are more processes than samples, the last ones compute the last sample, which does
    not count there.
    """
    processes = replicas.active()
    if processes is None or kind == PREDICT:
        return data, None
    which = rows_to_compute(processes, data.num_samples)
    return data._slice(which), processes.share(data.num_samples)


def rows_to_compute(processes: Replicas, total: int) -> slice:
    """Returns which of a batch's samples this process computes; there is at least one."""
    return slice(-1, None) if processes.share(total).is_empty else processes.rows(total)


class Pass(NamedTuple):
    """How a pass over arrays is cut into batches, and what this process computes of each.

    Attributes:
        full: whole batches.
        batch_size: samples of this process in each of them.
        rest: samples of this process in the last, shorter batch; 0 where there is none.
        share: its share of a whole batch, None where it is alone.
        rest_share: its share of the last one.
        total: samples of all processes in a whole batch.
        processes: those that train together.
    """

    full: int
    batch_size: int
    rest: int
    share: Share | None = None
    rest_share: Share | None = None
    total: int = 0
    processes: Replicas | None = None

    @property
    def num_batches(self) -> int:
        return self.full + bool(self.rest)

    @property
    def num_rows(self) -> int:
        """Returns how many samples this process computes."""
        return self.full * self.batch_size + self.rest

    def own_rows(self, order: np.ndarray | None, num_samples: int) -> np.ndarray | None:
        """Returns the samples that this process computes, in their order; None for all as they are.

        Args:
            order: The order of all samples, None for that of the data.
            num_samples: How many there are.
        """
        if self.processes is None:
            return order
        if order is None:
            order = np.arange(num_samples, dtype=np.int32)
        split = self.full * self.total
        own = order[:split].reshape(self.full, self.total)[:, self.processes.rows(self.total)]
        rest = order[split:]
        if self.rest_share is not None and not self.rest_share.is_empty:
            rest = rest[self.processes.rows(len(rest))]
        return np.ascontiguousarray(np.concatenate([own.reshape(-1), rest[-self.rest :]]))


def cut(kind: str, num_samples: int, batch_size: int) -> Pass:
    """Cuts a pass over so many samples into batches of `batch_size` samples of all processes.

    Raises:
        ValueError: where there are more processes than samples in a batch.
    """
    full, rest = divmod(num_samples, batch_size)
    processes = replicas.active()
    if processes is None or kind == PREDICT:
        return Pass(full, batch_size, rest)
    if batch_size < processes.size:
        raise ValueError(
            f"A batch of {batch_size} samples has none for some of {processes.size} processes. "
            f"`batch_size` counts the samples of all processes together: give at least "
            f"batch_size={processes.size}."
        )
    share = processes.share(batch_size)
    rest_share = processes.share(rest) if rest else None
    own_rest = 0 if rest_share is None else max(1, rest_share.local)
    return Pass(full, share.local, own_rest, share, rest_share, batch_size, processes)


class OwnBatches:
    """Batches of which each process has its own samples (`auto_shard_dataset=False`).

    Before each step the processes say how many samples they have. A pass ends when nobody has any;
    until then those without compute the last sample that they had, which does not count.

    Args:
        processes: those that train together.
        name: what the source of this process is called in errors.
    """

    def __init__(self, processes: Replicas, name: str):
        self._processes = processes
        self._name = name
        self._next: tuple[ArrayData, Share] | None = None
        self._last: ArrayData | None = None  # the last sample
        self._has_ended = False

    def begin_epoch(self) -> None:
        """Makes `has_next` ask again."""
        self._has_ended = False

    def expected_share(self, data: ArrayData) -> Share:
        """Returns the share that a batch has if the others' are as large."""
        size = self._processes.size
        return Share(data.num_samples, data.num_samples * size, size)

    def has_next(self, read: Callable[[], ArrayData | None]) -> bool:
        """Tells whether any process has another batch; all of them ask.

        Args:
            read: returns the next batch of this process, or None.
        """
        if self._has_ended:
            return False
        data = read()
        own = 0 if data is None else data.num_samples
        total = int(self._processes.engine.gather_array(np.array([own], np.int64)).sum())
        if total == 0:
            self._has_ended = True
            return False
        if data is not None:
            self._last = data._slice(slice(-1, None)).copy()
        elif self._last is None:
            raise ValueError(
                f"The {self._name} of process {self._processes.rank} has no batches, and those of "
                "other processes do. With auto_shard_dataset=False each process needs at least one "
                "sample."
            )
        else:
            data = self._last
        self._next = data, Share(own, total, self._processes.size)
        return True

    def take(self) -> tuple[ArrayData, Share]:
        """Returns the batch that `has_next` has found."""
        assert self._next is not None
        found, self._next = self._next, None
        return found


# So many samples stand for all of an array where processes compare theirs.
_COMPARED_ROWS = 16


def form_of_arrays(arrays: Sequence[Any], batch_size: int) -> str:
    """Describes arrays by shapes, dtypes and a few of their samples."""
    parts = []
    for array in arrays:
        rows = np.linspace(0, len(array) - 1, _COMPARED_ROWS).astype(np.int64)
        some = hashlib.sha256(np.asarray(array[rows]).tobytes()).hexdigest()[:16]
        parts.append(f"{array.dtype.name} {tuple(array.shape)} with checksum {some}")
    return f"batches of {batch_size} samples of {' and '.join(parts)}"


class SharedPrediction:
    """The rows of arrays that this process predicts for, and the results of all processes.

    Sources of batches, and arrays where this process is alone, are predicted for as they are.

    Args:
        data: the data.
        batch_size: samples of a batch.
        steps: how many batches, None for all of them.
    """

    def __init__(self, data: Any, batch_size: int, steps: int | None):
        self.data, self.steps = data, steps
        self._processes = replicas.active() if isinstance(data, ArrayData) else None
        if self._processes is None:
            return
        total = data.num_samples if steps is None else min(data.num_samples, steps * batch_size)
        rows = self._processes.rows(total)
        self._count = rows.stop - rows.start
        # Outputs have the same form in a process that has no rows.
        self.data = data._slice(rows if self._count else slice(0, 1))
        self.steps = None

    def whole(self, found: Any, as_tensor: bool) -> Any:
        """Returns the results for all rows, in all processes.

        Args:
            found: the results of this process.
            as_tensor: whether they are tensors.
        """
        if self._processes is None:
            return found
        own = [np.asarray(leaf)[: self._count] for leaf in trees.flatten(found)]
        parts = zip(*self._processes.engine.gather_objects(own), strict=True)
        whole: list[Any] = [np.concatenate(of_all) for of_all in parts]
        if as_tensor:
            device = trees.flatten(found)[0].device
            whole = [_core.from_numpy(array, device) for array in whole]
        return trees.pack_as(found, whole)

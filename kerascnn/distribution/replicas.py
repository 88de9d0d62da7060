"""What training asks of the other processes: sums, means, and which share of a batch is whose.

What is differentiated in each process is such that the mean of the processes' gradients is that of
one device on the whole batch. So a mean over the batch is, in a process with `local` of its `total`
samples, the mean over these times `local * processes / total`; what each process computes alike,
such as the penalties of regularizers, counts as it is. Sums over processes are taken in the order
of the processes, so the bits are the same in all of them and in each run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

# The gradient that brings a message to so many bytes is its last one. On a CPU a message needs
# twice as much memory beside them.
_BUCKET_BYTES = 32 << 20
# Where sums run beside the backward pass, a message has at least half of what is not under way yet,
# so that little is left after it. Of smaller messages than these the latency is half of the time,
# so they are not divided further.
_LEAST_BYTES = 1 << 20
# Writing a file may take so many times as long as processes wait for one another in a step.
_LONG = 20


class Share(NamedTuple):
    """The part of a batch that this process computes."""

    local: int  # samples of this process; 0 where others have all of them
    total: int  # samples of all processes
    processes: int

    @property
    def weight(self) -> float:
        """Returns what a mean over the own samples is multiplied by."""
        return self.local * self.processes / self.total

    @property
    def is_empty(self) -> bool:
        """Tells whether the samples that this process computes are not its own and don't count."""
        return self.local == 0

    @property
    def samples_of_mean(self) -> float:
        """Returns the mean number of samples, which is the weight of the batch's loss."""
        return self.total / self.processes


class Replicas:
    """The processes that train one model, seen from one of them.

    Args:
        engine: What connects them.
        shares_sources: Whether all have the same sources of batches, of which each takes its share.
    """

    def __init__(self, engine: Any, shares_sources: bool = True):
        self.engine = engine
        self.rank: int = engine.rank
        self.size: int = engine.size
        self.shares_sources = shares_sources

    @property
    def is_first(self) -> bool:
        """Tells whether this process writes files and shows progress."""
        return self.rank == 0

    def rows(self, total: int) -> slice:
        """Returns the rows of a batch that are this process': the first ones take one more."""
        each, more = divmod(total, self.size)
        first = self.rank * each + min(self.rank, more)
        return slice(first, first + each + (self.rank < more))

    def share(self, total: int) -> Share:
        """Returns this process' share of a batch of so many samples."""
        rows = self.rows(total)
        return Share(rows.stop - rows.start, total, self.size)

    def sum_arrays(self, arrays: Sequence[np.ndarray], how: Sequence[str]) -> list[np.ndarray]:
        """Combines arrays of all processes, which have the same shapes.

        Args:
            arrays: What this process gives.
            how: For each of them `"sum"`, `"mean"`, or anything else for the first process' one.
        """
        if not arrays:
            return []
        given = np.concatenate([np.asarray(a, np.float64).reshape(-1) for a in arrays])
        everyones = self.engine.gather_array(given)
        result, at = [], 0
        for array, one in zip(arrays, how, strict=True):
            rows = everyones[:, at : at + array.size]
            at += array.size
            if one in ("sum", "mean"):
                total = rows[0].copy()
                for row in rows[1:]:
                    total += row
                value = total / self.size if one == "mean" else total
            else:
                value = rows[0]
            result.append(value.reshape(array.shape).astype(array.dtype))
        return result

    def from_first(self, value: Any) -> Any:
        """Returns what the first process has, for which the others wait longer than usual."""
        return self.engine.gather_objects(value if self.is_first else None, _LONG)[0]

    def wait(self) -> None:
        """Returns when all processes have come here, waiting longer than usual."""
        self.engine.gather_objects(None, _LONG)


_active: Replicas | None = None
_share: ContextVar[Share | None] = ContextVar("share", default=None)


def activate(value: Replicas | None) -> None:
    """Makes training use these processes, or this one alone."""
    global _active
    _active = value


def active() -> Replicas | None:
    """Returns the processes that train together, or None where this one is alone."""
    return _active


def is_first() -> bool:
    """Tells whether this process writes files and shows progress: it is the first, or alone."""
    return _active is None or _active.is_first


@contextlib.contextmanager
def sharing(share: Share | None) -> Iterator[None]:
    """A block that computes on this share of a batch."""
    token = _share.set(share)
    try:
        yield
    finally:
        _share.reset(token)


def current_share() -> Share | None:
    """Returns the share of the step that is recorded or runs, or None."""
    return _share.get()


def _all_reduce(values: list[Any], scale: float, factor: float, joins: bool = False) -> list[Any]:
    from kerascnn.ops import dispatch

    assert _active is not None
    attributes = {"processes": _active.size, "scale": float(scale), "factor": float(factor)}
    if joins:
        attributes["joins"] = True
    return dispatch.apply("all_reduce", values, attributes)


def _own_scale() -> float:
    share = current_share()
    return 0.0 if share is not None and share.is_empty else 1.0


def summed(values: Sequence[Any]) -> list[Any]:
    """The sums of tensors of one dtype over the processes; gradients go through them."""
    if _active is None:
        return list(values)
    return _all_reduce(list(values), _own_scale(), 1.0)


def averaged(values: Sequence[Any]) -> list[Any]:
    """The means of tensors over the processes, weighted by their shares of the batch.

    A compiled step may send those of several calls together.
    """
    if _active is None:
        return list(values)
    share = current_share()
    weight = 1.0 if share is None else share.weight
    return _all_reduce(list(values), weight, 1.0 / _active.size, joins=True)


def mean_gradients(gradients: Sequence[Any]) -> list[Any]:
    """The means of gradients over the processes: the gradients of one device on the whole batch.

    Where there is none (None), there is none in any process.
    """
    result = list(gradients)
    if _active is None:
        return result
    from kerascnn.ops import dispatch

    result = [None if g is None else dispatch.convert(g) for g in result]
    for bucket in _buckets(result):
        # A share without samples counts too: its loss has the penalties that all have.
        means = _all_reduce([result[i] for i in bucket], 1.0, 1.0 / _active.size)
        for i, mean in zip(bucket, means, strict=True):
            result[i] = mean
    return result


def _buckets(gradients: list[Any]) -> Iterator[list[int]]:
    """Yields the places of gradients that go in one message, which have one dtype.

    The last ones come first, as in the backward pass: GPUs sum them beside the rest of it.
    """
    from kerascnn import dtypes
    from kerascnn.distribution import processes

    by_dtype: dict[str, list[int]] = {}
    num_bytes: dict[int, int] = {}
    for i, gradient in reversed(list(enumerate(gradients))):
        if gradient is not None:
            dtype = str(gradient.dtype)
            by_dtype.setdefault(dtype, []).append(i)
            num_bytes[i] = int(np.prod(gradient.shape)) * dtypes.ITEMSIZE[dtype]
    overlaps = processes.device_kind() == "gpu"
    left = sum(num_bytes.values())
    for places in by_dtype.values():
        bucket: list[int] = []
        size = 0
        for i in places:
            bucket.append(i)
            size += num_bytes[i]
            enough = min(_BUCKET_BYTES, max(left // 2, _LEAST_BYTES)) if overlaps else _BUCKET_BYTES
            if size >= enough:
                yield bucket
                left -= size
                bucket, size = [], 0
        if bucket:
            yield bucket


def own_stream(stream: int) -> int:
    """Returns the number of a draw's stream in this process, which no other process has."""
    return stream if _active is None else stream * _active.size + _active.rank


@contextlib.contextmanager
def whole_metrics(metrics: Sequence[Any]) -> Iterator[None]:
    """A block in which metrics have seen what they have seen in all processes."""
    if _active is None:
        yield
        return
    variables = list({id(v): v for metric in metrics for v in metric.variables}.values())
    own = [v.numpy().copy() for v in variables]
    wholes = _active.sum_arrays(own, [v.aggregation or "none" for v in variables])
    for variable, whole in zip(variables, wholes, strict=True):
        variable.assign(whole)
    try:
        yield
    finally:
        for variable, value in zip(variables, own, strict=True):
            variable.assign(value)


def of_each(value: Any) -> list[Any]:
    """The values of all processes in their order; nothing where this one is alone."""
    return [] if _active is None else _active.engine.gather_objects(value)


def own_of_each(values: list[Any]) -> Any:
    """What this process had of what `of_each` returned, None for another number of processes."""
    return values[_active.rank] if _active is not None and len(values) == _active.size else None


def assign_whole(variable: Any, value: np.ndarray) -> None:
    """Gives a metric's variable what all processes together have seen: the first one has it all."""
    adds_up = variable.aggregation == "sum"
    variable.assign(value if is_first() or not adds_up else np.zeros_like(value))


def mean_of_logs(logs: Any) -> Any:
    """Numbers that a step of the user's own returned, averaged over the processes."""
    from kerascnn import trees

    if _active is None:
        return logs
    leaves = [np.asarray(leaf, np.float64) for leaf in trees.flatten(logs)]
    means = _active.sum_arrays(leaves, ["mean"] * len(leaves))
    return trees.pack_as(logs, [float(m) if m.ndim == 0 else m for m in means])


def least(value: float) -> float:
    """The smallest of the numbers of all processes."""
    if _active is None:
        return value
    return float(_active.engine.gather_array(np.array([value], np.float64)).min())


def check_alike(describe: Callable[[], dict[str, str]]) -> None:
    """Raises where the processes differ in what has to be the same.

    Args:
        describe: Returns a text for each subject; called where there are several processes.

    Raises:
        ValueError: in all processes, with the subject and the process that differs from the first.
    """
    if _active is None:
        return
    everyones = _active.engine.gather_objects(describe())
    first = everyones[0]
    for rank, other in enumerate(everyones[1:], 1):
        for subject in [*first, *(key for key in other if key not in first)]:
            if first.get(subject) != other.get(subject):
                raise ValueError(
                    f"The processes have to train the same model on the same data, but {subject} "
                    f"is different: process 0 has {first.get(subject, 'none')}, process {rank} has "
                    f"{other.get(subject, 'none')}. Run the same script in all of them; load the "
                    "same weights in all, or none."
                )

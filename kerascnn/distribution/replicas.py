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
        shares_state: Whether each has the optimizer state of its own weights only.
    """

    def __init__(self, engine: Any, shares_sources: bool = True, shares_state: bool = False):
        self.engine = engine
        self.rank: int = engine.rank
        self.size: int = engine.size
        self.shares_sources = shares_sources
        self.shares_state = shares_state

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
            value = combined(list(rows), one) if one in ("sum", "mean") else rows[0]
            result.append(value.reshape(array.shape).astype(array.dtype))
        return result

    def from_first(self, value: Any) -> Any:
        """Returns what the first process has, for which the others wait longer than usual."""
        return self.engine.gather_objects(value if self.is_first else None, _LONG)[0]

    def wait(self) -> None:
        """Returns when all processes have come here, waiting longer than usual."""
        self.engine.gather_objects(None, _LONG)


def combined(values: Sequence[np.ndarray], how: str) -> np.ndarray:
    """Returns the `"sum"` or `"mean"` of arrays, added in their order, in float64."""
    total = np.array(values[0], np.float64)
    for value in values[1:]:
        total += value
    return total / len(values) if how == "mean" else total


_active: Replicas | None = None
# Several devices of this process, where they train together (local_replicas.py), and the one of
# them that a step is recorded for.
_local: Any = None
# What gradients are rounded to before they are averaged; None for what they are.
_reduce_dtype: str | None = None
_here: ContextVar[Replicas | None] = ContextVar("replica", default=None)
_share: ContextVar[Share | None] = ContextVar("share", default=None)


def activate(value: Replicas | None, local: Any = None, reduce_dtype: str | None = None) -> None:
    """Makes training use these processes, or this one alone, with one device or a `LocalGroup`.

    Args:
        value: the processes, or None.
        local: the `LocalGroup`, or None.
        reduce_dtype: what gradients are rounded to before they are averaged, None for what they
            are.
    """
    global _active, _local, _reduce_dtype
    _active, _local, _reduce_dtype = value, local, reduce_dtype


def active() -> Replicas | None:
    """Returns the processes that train together, or None where this one is alone.

    While a step is recorded for one of several devices of this process, these look like processes.
    """
    return _here.get() or _active


def local_group() -> Any:
    """Returns the `LocalGroup` of this process that trains together, or None.

    None also while a step is recorded for one of its devices.
    """
    return _local if _here.get() is None else None


def reduce_dtype() -> str | None:
    """Returns what gradients are rounded to before they are averaged, None for what they are."""
    return _reduce_dtype


def local_replica() -> Any:
    """Returns the `LocalReplica` that a step is recorded for, or None."""
    return _here.get()


@contextlib.contextmanager
def as_replica(replica: Replicas) -> Iterator[None]:
    """A block that records what one of several devices of this process computes."""
    token = _here.set(replica)
    try:
        yield
    finally:
        _here.reset(token)


def on_first_device() -> contextlib.AbstractContextManager[None]:
    """A block that records what the first of several devices of this process computes."""
    group = local_group()
    return contextlib.nullcontext() if group is None else group.replicas[0].recording()


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

    together = active()
    assert together is not None
    attributes = {"processes": together.size, "scale": float(scale), "factor": float(factor)}
    if joins:
        attributes["joins"] = True
    return dispatch.apply("all_reduce", values, attributes)


def _own_scale() -> float:
    share = current_share()
    return 0.0 if share is not None and share.is_empty else 1.0


def summed(values: Sequence[Any]) -> list[Any]:
    """The sums of tensors of one dtype over the processes; gradients go through them."""
    if active() is None:
        return list(values)
    return _all_reduce(list(values), _own_scale(), 1.0)


def plain_sums(values: Sequence[Any]) -> list[Any]:
    """The sums of tensors of one dtype over the processes, whatever their shares of a batch."""
    return _all_reduce(list(values), 1.0, 1.0)


def averaged(values: Sequence[Any]) -> list[Any]:
    """The means of tensors over the processes, weighted by their shares of the batch.

    A compiled step may send those of several calls together.
    """
    together = active()
    if together is None:
        return list(values)
    share = current_share()
    weight = 1.0 if share is None else share.weight
    return _all_reduce(list(values), weight, 1.0 / together.size, joins=True)


def mean_gradients(gradients: Sequence[Any]) -> list[Any]:
    """The means of gradients over the processes: the gradients of one device on the whole batch.

    Where there is none (None), there is none in any process.
    """
    result = list(gradients)
    together = active()
    if together is None:
        if _local is not None:
            _local.refuse()
        return result
    from kerascnn.ops import dispatch

    given = [None if g is None else dispatch.convert(g) for g in result]
    result = to_reduce_dtype(given)
    for bucket in buckets(result):
        # A share without samples counts too: its loss has the penalties that all have.
        means = _all_reduce([result[i] for i in bucket], 1.0, 1.0 / together.size)
        for i, mean in zip(bucket, means, strict=True):
            result[i] = mean
    return from_reduce_dtype(result, given)


def to_reduce_dtype(gradients: Sequence[Any]) -> list[Any]:
    """Gradients as they go to other processes: in `reduce_dtype`, where one was chosen.

    Those that mixed precision has widened from it keep their values, and a compiled step has
    neither of the two casts.
    """
    from kerascnn import ops

    if _reduce_dtype is None:
        return list(gradients)
    return [None if g is None else ops.cast(g, _reduce_dtype) for g in gradients]


def from_reduce_dtype(means: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """Means of such gradients in the dtypes of those that were given."""
    from kerascnn import ops

    if _reduce_dtype is None:
        return list(means)
    return [
        None if mean is None else ops.cast(mean, str(gradient.dtype))
        for mean, gradient in zip(means, given, strict=True)
    ]


def buckets(tensors: list[Any], of_backward: bool = True) -> Iterator[list[int]]:
    """Yields the places of tensors that go in one message, which have one dtype.

    Args:
        tensors: for example gradients. There may be None, which is left out.
        of_backward: whether GPUs send them beside the backward pass, in which the last ones come
            first. Messages are smaller then.
    """
    from kerascnn import dtypes
    from kerascnn.distribution import processes

    by_dtype: dict[str, list[int]] = {}
    num_bytes: dict[int, int] = {}
    for i, tensor in reversed(list(enumerate(tensors))):
        if tensor is not None:
            dtype = str(tensor.dtype)
            by_dtype.setdefault(dtype, []).append(i)
            num_bytes[i] = int(np.prod(tensor.shape)) * dtypes.ITEMSIZE[dtype]
    replica = local_replica()
    kind = processes.device_kind() if replica is None else replica.device
    overlaps = of_backward and kind != "cpu"
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
    together = active()
    return stream if together is None else stream * together.size + together.rank


@contextlib.contextmanager
def whole_metrics(metrics: Sequence[Any]) -> Iterator[None]:
    """A block in which metrics have seen what they have seen in all processes."""
    if _active is None and _local is None:
        yield
        return
    variables = list({id(v): v for metric in metrics for v in metric.variables}.values())
    if _active is None:
        with _local.whole_metrics(variables):
            yield
        return
    own = [v.numpy().copy() for v in variables]
    wholes = _active.sum_arrays(own, [v.aggregation or "none" for v in variables])
    for variable, whole in zip(variables, wholes, strict=True):
        variable.assign(whole)
    try:
        yield
    finally:
        for variable, value in zip(variables, own, strict=True):
            variable.assign(value)


def wait() -> None:
    """Returns when all processes have come here, such as after what the first does alone."""
    if _active is not None:
        _active.wait()


def values_of_each(variables: dict[str, Any]) -> list[dict[str, np.ndarray]]:
    """The values of variables in all processes, or on all devices of this one, in their order.

    Nothing where one device is alone.
    """
    if _active is not None:
        return _active.engine.gather_objects({name: v.numpy() for name, v in variables.items()})
    if _local is None:
        return []
    values = {name: _local.values(v.core) for name, v in variables.items()}
    return [
        {name: of[min(i, len(of) - 1)] for name, of in values.items()} for i in range(_local.size)
    ]


def assign_of_each(variables: dict[str, Any], values: list[dict[str, np.ndarray]]) -> bool:
    """Gives each process, or device, what it had in what `values_of_each` returned.

    Returns:
        False, and nothing is assigned, where there were another number of them.
    """
    if _active is not None and len(values) == _active.size:
        for name, variable in variables.items():
            variable.assign(values[_active.rank][name])
        return True
    if _active is None and _local is not None and len(values) == _local.size:
        for name, variable in variables.items():
            _local.assign_each(variable, [of_one[name] for of_one in values])
        return True
    return False


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


def least(core: Any) -> float:
    """The smallest of the numbers that a variable of the core has in all processes."""
    if _active is None and _local is not None:
        return min(float(value) for value in _local.values(core))
    value = float(core.value.numpy())
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

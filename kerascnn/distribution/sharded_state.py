"""Optimizer state that processes share: each has that of its own weights (ZeRO's first stage).

Every weight has an owner. Gradients are averaged in the owner alone, which updates the weight by
state that only it has, and gives the weight to all. So optimizers work as they do on one device,
each on the weights of its process, and weights end as they do without sharing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kerascnn import dtypes
from kerascnn.distribution import replicas

# Files get the state in pieces of about so many bytes.
_PIECE_BYTES = 64 << 20


class Elsewhere:
    """Stands for a variable of an optimizer that another process has.

    Args:
        path: its name with scopes.
        shape: its shape.
        dtype: its dtype.
        owner: the process that has it.
    """

    def __init__(self, path: str, shape: Sequence[int], dtype: str, owner: int):
        self.path = path
        self.name = path.rpartition("/")[2]
        self.shape = tuple(shape)
        self.dtype = dtype
        self.owner = owner

    def assign(self, value: Any) -> None:
        """Does nothing: its owner assigns it."""

    @property
    def value(self) -> Any:
        """Raises RuntimeError, as other uses do."""
        raise RuntimeError(
            f"The optimizer's variable '{self.path}' is in process {self.owner}, as "
            "DataParallel(shard_optimizer_state=True) says. An optimizer reads state of those "
            "weights only that update_step is called for."
        )

    def numpy(self) -> np.ndarray:
        """Raises RuntimeError."""
        return self.value

    def __repr__(self) -> str:
        return f"<Elsewhere path={self.path}, shape={self.shape}, process={self.owner}>"


def partition(sizes: Sequence[int], processes: int) -> list[int]:
    """Chooses an owner for each weight: the largest first, each to the process that has least.

    Args:
        sizes: the weights' bytes.
        processes: how many processes there are.

    Returns:
        The number of the owner of each.

    >>> partition([10, 70, 40, 30], 2)
    [0, 0, 1, 1]
    """
    loads = [0] * processes
    owners = [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        owner = min(range(processes), key=lambda rank: (loads[rank], rank))
        owners[place] = owner
        loads[owner] += sizes[place]
    return owners


class Shards:
    """Who owns which of an optimizer's weights.

    Args:
        variables: the weights, in the optimizer's order.
        rank: this process.
        size: how many there are.
    """

    def __init__(self, variables: Sequence[Any], rank: int, size: int):
        self.rank, self.size = rank, size
        num_bytes = [v.size * dtypes.ITEMSIZE[v.core.dtype] for v in variables]
        self.owners = partition(num_bytes, size)

    def is_own(self, place: int) -> bool:
        """Tells whether this process updates the weight at this place."""
        return self.owners[place] == self.rank

    def check(self, name: str) -> None:
        """Raises RuntimeError where the processes are not those that share the state now."""
        together = replicas.active()
        now = 1 if together is None or not together.shares_state else together.size
        if now != self.size:
            raise RuntimeError(
                f"'{name}' has the state of its own part of the weights, one of {self.size}, and "
                f"there {'is no sharing' if now == 1 else f'are {now} processes'} now. Save the "
                "model while the distribution is set, and load it where it is to be trained on."
            )

    def mean_gradients(self, gradients: Sequence[Any], places: Sequence[int]) -> list[Any]:
        """The means over the processes in the places of own weights; the others as they are.

        Args:
            gradients: one for each place.
            places: of their weights.
        """
        factor = {"factor": 1.0 / self.size}
        sent = replicas.to_reduce_dtype(gradients)
        means = self._messages("reduce_to_owners", sent, places, factor, True)
        return replicas.from_reduce_dtype(means, gradients)

    def from_owners(self, values: Sequence[Any], places: Sequence[int]) -> list[Any]:
        """What the owner of each weight has for it.

        Args:
            values: one for each place.
            places: of the weights.
        """
        return self._messages("broadcast_from_owners", values, places, {}, False)

    def _messages(
        self,
        op: str,
        values: Sequence[Any],
        places: Sequence[int],
        attributes: dict[str, Any],
        of_backward: bool,
    ) -> list[Any]:
        from kerascnn.ops import dispatch

        result = list(values)
        for bucket in replicas.buckets(result, of_backward):
            given = {
                "processes": self.size,
                "owners": [self.owners[places[i]] for i in bucket],
                **attributes,
            }
            found = dispatch.apply(op, [result[i] for i in bucket], given)
            for i, value in zip(bucket, found, strict=True):
                result[i] = value
        return result

    def global_norm(self, gradients: Sequence[Any], places: Sequence[int]) -> Any:
        """The length of the gradients of all weights, with the bits of `clipping.global_norm`.

        Args:
            gradients: of own weights.
            places: of these.
        """
        from kerascnn import ops

        own = dict(zip(places, gradients, strict=True))
        zero = ops.zeros((), "float32")
        squares = [
            ops.sum(ops.square(ops.cast(own[i], "float32"))) if i in own else zero
            for i in range(len(self.owners))
        ]
        total = None
        # The others add zeros, so these are the owners' numbers.
        for square in replicas.plain_sums(squares):
            total = square if total is None else total + square
        return ops.sqrt(total)

    def all_of_them(self, is_so: Any) -> Any:
        """Tells whether something holds in all processes, as a bool of shape ()."""
        from kerascnn import ops

        (exceptions,) = replicas.plain_sums([ops.cast(ops.logical_not(is_so), "float32")])
        return ops.equal(exceptions, 0.0)


def shards_for(variables: Sequence[Any]) -> Shards | None:
    """Returns who owns which of an optimizer's weights, None where each process has all state."""
    together = replicas.active()
    if together is None or not together.shares_state:
        return None
    return Shards(variables, together.rank, together.size)


def values_of_all(
    entries: Sequence[tuple[Any, int | None]], keeps: bool = True
) -> list[np.ndarray | None]:
    """The values of variables of which some are in one process each; all processes call it.

    Args:
        entries: variables, or what stands for them, and the process that has each; None for those
            that all have.
        keeps: whether this process wants what others have. Otherwise there is None for it.
    """
    together = replicas.active()
    result: list[np.ndarray | None] = []
    if all(owner is None for _, owner in entries):
        return [variable.numpy() for variable, _ in entries]
    if together is None:
        raise RuntimeError(
            "This process has a part of the optimizer's state, which others had with "
            "DataParallel(shard_optimizer_state=True). Save the model while that is set."
        )
    for piece in _pieces(entries):
        mine = {i: v.numpy() for i, (v, _) in enumerate(piece) if not isinstance(v, Elsewhere)}
        if all(owner is None for _, owner in piece):
            result += [mine[i] for i in range(len(piece))]
            continue
        sent = {i: mine[i] for i, (_, owner) in enumerate(piece) if owner == together.rank}
        everyones = _gather(together, sent)
        for i, (_, owner) in enumerate(piece):
            if i in mine:
                result.append(mine[i])
            else:
                assert owner is not None
                result.append(everyones[owner][i] if keeps else None)
    return result


def _gather(together: replicas.Replicas, value: Any) -> list[Any]:
    try:
        return together.engine.gather_objects(value)
    except TimeoutError as error:
        raise TimeoutError(
            f"{error} An optimizer's state of which each process has a part is saved by all of "
            "them: call model.save() in each, not in the first one alone."
        ) from error


def means_of(variables: Sequence[Any]) -> list[np.ndarray]:
    """The means of variables over the processes, all of which call it, or over devices."""
    if not variables:
        return []
    everyones = replicas.values_of_each({str(i): v for i, v in enumerate(variables)})
    values = [[one[str(i)] for one in everyones] for i in range(len(variables))]
    return [replicas.combined(of_all, "mean").astype(of_all[0].dtype) for of_all in values]


@contextlib.contextmanager
def saving_together(model: Any) -> Iterator[None]:
    """A block in which the first process may save a model; all processes enter it together."""
    optimizer = getattr(model, "optimizer", None)
    is_alone = replicas.active() is None and replicas.local_group() is None
    if is_alone or optimizer is None or not optimizer.built:
        yield
        return
    with optimizer._gathered_in_first():
        yield


def _pieces(
    entries: Sequence[tuple[Any, int | None]],
) -> Iterator[Sequence[tuple[Any, int | None]]]:
    piece: list[tuple[Any, int | None]] = []
    num_bytes = 0
    for entry in entries:
        piece.append(entry)
        num_bytes += int(np.prod(entry[0].shape)) * dtypes.ITEMSIZE[str(entry[0].dtype)]
        if num_bytes >= _PIECE_BYTES:
            yield piece
            piece, num_bytes = [], 0
    if piece:
        yield piece

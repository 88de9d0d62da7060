"""How batches reach their step: directly, or from the host to a GPU through a ring."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerascnn import _core, dtypes
from kerascnn.distribution import replicas
from kerascnn.training.chunks import host_memory
from kerascnn.training.device_state import StagedTensor, StepState
from kerascnn.training.steps import PREDICT, BatchSource, Step

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery

# This is half of a ring. It is large enough that copies run at full speed and a launch serves many
# steps.
HALF_BYTES = 8 << 20
HALF_BATCHES = 64
# Enqueuing copies and steps takes a few tens of microseconds, for one batch as for sixty. While the
# device is idle, batches are collected for this long. A slow source takes much longer than that,
# and a fast one pays for a launch only now and then.
COLLECT_SECONDS = 3e-4
_ALIGNMENT = 256


class Route:
    """How batches of one form reach their step."""

    step: Step

    def put(self, arrays: Sequence[Any]) -> None:
        """Takes a batch."""
        raise NotImplementedError

    def flush(self) -> None:
        """Enqueues the steps of batches that wait."""


class DirectRoute(Route):
    """Copies each batch to the step's own place and runs the step: one that is on the device there,
    one on the host where the host is the device, or one of arrays of several lengths.

    Args:
        model: the model.
        kind: the kind of step.
        source: what batches look like; `rows` and `counts` are left to the route.
        state: the counters that steps read and write.
    """

    def __init__(self, model: StepMachinery, kind: str, source: BatchSource, state: StepState):
        self.step: Step = model._compiled_step(kind, source, state)
        self._staged = [StagedTensor("batch", s, dtype, state.device) for s, dtype in source.specs]

    def put(self, arrays: Sequence[Any]) -> None:
        """Takes a batch."""
        for staged, array in zip(self._staged, arrays, strict=True):
            staged.write(array)
        self.step.run([staged.tensor for staged in self._staged], 1)


class Ring:
    """Memory for batches on their way: page-locked on the host, and as much on the device.

    Args:
        num_bytes: the size.
        device: the device.
    """

    def __init__(self, num_bytes: int, device: str):
        self.num_bytes = num_bytes
        self.host = host_memory([num_bytes], "uint8", device)
        self.memory = _core.empty([num_bytes], "uint8", device)
        self.halves = (_core.Upload(device), _core.Upload(device))
        self.steps_done = _core.Fence(device)  # the steps of the batches that were sent last
        self.user: object = None  # the route whose batches are in the ring


class RingRoute(Route):
    """Collects batches in page-locked memory and runs the steps of many of them with one launch.

    While the device works on one half of the ring, the other is filled and copied. A half goes to
    the device when it is full, and what there is of it when the device has nothing to do.

    Args:
        model: the model.
        kind: the kind of step.
        source: what batches look like; `rows` and `counts` are left to the route.
        state: the counters that steps read and write; has the ring.
        half: how many batches half of the ring takes, by default as many as there is room for.
        owner: the route that this one is part of.
    """

    def __init__(
        self,
        model: StepMachinery,
        kind: str,
        source: BatchSource,
        state: StepState,
        half: int | None = None,
        owner: Any = None,
    ):
        self._state = state
        self._owner = owner or self
        self._ring, most = ring_for(state, source)
        self._half = half or most
        self._size = source.batch_size
        rows = 2 * self._half * self._size
        specs = tuple(((rows, *shape[1:]), dtype) for shape, dtype in source.specs)
        of_ring = source._replace(specs=specs, rows=rows, counts=True)
        self.step: Step = model._compiled_step(kind, of_ring, state)
        self._lay_out(specs)
        self._order = StagedTensor("order", (rows,), "int32", state.device)
        self._order.write(np.arange(rows, dtype=np.int32))
        self.inputs = [*self._targets, self._order.tensor]
        self._filled = 0  # batches of this round in the ring
        self._sent = 0  # batches whose steps are enqueued
        self._sent_at = 0.0
        self._name = object()  # names the user of the ring and of the state's counter

    def _lay_out(self, specs: Sequence[tuple[tuple[int, ...], str]]) -> None:
        self._sources: list[_core.Tensor] = []
        self._targets: list[_core.Tensor] = []
        offset = 0
        for shape, dtype in specs:
            for pieces, memory in (
                (self._sources, self._ring.host),
                (self._targets, self._ring.memory),
            ):
                pieces.append(memory.piece(list(shape), dtype, offset))
            offset += _aligned(_num_bytes(shape, dtype))
        hosts = [piece.numpy() for piece in self._sources]
        size = self._size
        self._places = [
            [host[i * size : (i + 1) * size] for host in hosts] for i in range(2 * self._half)
        ]

    def put(self, arrays: Sequence[np.ndarray]) -> None:
        """Takes a batch, and sends the collected ones if it is time."""
        self.take(arrays)
        if self.is_due():
            self.flush()

    def take(self, arrays: Sequence[np.ndarray]) -> None:
        """Takes a batch."""
        if self._ring.user is not self._name:
            self._enter()
        position = self._filled
        if position % self._half == 0:
            position = self._begin_half()
        for place, array in zip(self._places[position], arrays, strict=True):
            place[...] = array
        self._filled = position + 1
        self._state.waiting = self._owner

    def is_due(self) -> bool:
        """Tells whether it is time to send the collected batches."""
        return self._filled % self._half == 0 or self._device_is_idle()

    def _enter(self) -> None:
        """Takes over the ring from a route with another layout."""
        self._state.flush()
        for half in self._ring.halves:
            half.wait()
            half.mark_used()  # steps enqueued so far may read any part of the ring
        self._ring.user = self._name
        self._filled = self._sent = 0

    def _begin_half(self) -> int:
        if self._filled == 2 * self._half:
            self._filled = self._sent = 0
        self._ring.halves[self._filled // self._half].wait()
        return self._filled

    def _device_is_idle(self) -> bool:
        if time.perf_counter() - self._sent_at < COLLECT_SECONDS:
            return False
        return self._ring.steps_done.passed()

    def flush(self) -> None:
        """Enqueues the copies and the steps of waiting batches, and waits for nothing."""
        count = self.begin_flush()
        if count:
            self.step.run(self.inputs, count)
            self.end_flush(count)

    def begin_flush(self) -> int:
        """Enqueues the copies of waiting batches; returns how many these are."""
        first, count = self._sent, self._filled - self._sent
        if count:
            self._state.waiting = None
            self._sent = self._filled
            half = self._ring.halves[first // self._half]
            half.send(self._targets, self._sources, first * self._size, count * self._size)
            self._state.depart(self._name, first)
        return count

    def end_flush(self, count: int) -> None:
        """Notes that the steps of so many batches are enqueued."""
        self._state.arrive(self._name, self._sent)
        self._ring.steps_done.record()
        if self._sent % self._half == 0:
            self._ring.halves[(self._sent - count) // self._half].mark_used()
        self._sent_at = time.perf_counter()


def make_route(
    model: StepMachinery, kind: str, source: BatchSource, state: StepState, is_on_device: bool
) -> Route:
    """Makes the route for batches like `source`, on the host or on the state's device."""
    lengths = {shape[0] for shape, _ in source.specs}  # all batches of a ring have one length
    is_direct = is_on_device or state.device == "cpu" or len(lengths) > 1
    group = replicas.local_group()
    if group is not None and kind != PREDICT:
        from kerascnn.training.replicated_routes import ReplicatedDirectRoute, ReplicatedRingRoute

        shared = ReplicatedDirectRoute if is_direct else ReplicatedRingRoute
        return shared(model, group, kind, source, state)
    route = DirectRoute if is_direct else RingRoute
    return route(model, kind, source, state)


def ring_for(state: StepState, source: BatchSource) -> tuple[Ring, int]:
    """The state's ring, which is made or replaced if a batch needs more, and its half in batches.

    Args:
        state: the state.
        source: what batches look like.
    """
    sizes = [_num_bytes(shape, dtype) for shape, dtype in source.specs]
    if state.ring is None or batches_per_half(state.ring.num_bytes, sizes) < 1:
        half = max(1, min(HALF_BATCHES, HALF_BYTES // max(1, sum(sizes))))
        state.ring = Ring(sum(_aligned(2 * half * size) for size in sizes), state.device)
    return state.ring, batches_per_half(state.ring.num_bytes, sizes)


def batches_per_half(num_bytes: int, sizes: Sequence[int]) -> int:
    """Returns how many batches of arrays with so many bytes fit in half of a ring; may be 0."""
    room = num_bytes // _ALIGNMENT * _ALIGNMENT
    half = min(HALF_BATCHES, room // max(1, 2 * sum(sizes)))
    while half > 0 and sum(_aligned(2 * half * size) for size in sizes) > room:
        half -= 1
    return half


def _num_bytes(shape: Sequence[int], dtype: str) -> int:
    return math.prod(shape) * dtypes.numpy_dtype(dtype).itemsize


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT

"""How batches of a source reach several devices of this process: each gets its share of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kerascnn.distribution.local_replicas import LocalGroup
from kerascnn.training.device_state import StepState
from kerascnn.training.replicated_step import joined, own_source, states_of
from kerascnn.training.routes import RingRoute, Route, ring_for
from kerascnn.training.shares import rows_to_compute
from kerascnn.training.steps import BatchSource

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery


class ReplicatedDirectRoute(Route):
    """Copies each batch to the places of the steps and runs them.

    Args:
        model: the model.
        group: the devices.
        kind: the kind of step.
        source: what whole batches look like; `rows` and `counts` are left to the route.
        state: the counters of the first device.
    """

    def __init__(
        self,
        model: StepMachinery,
        group: LocalGroup,
        kind: str,
        source: BatchSource,
        state: StepState,
    ):
        self.step = model._compiled_step(kind, source, state)
        self._device = state.device

    def put(self, arrays: Sequence[Any]) -> None:
        self.step.run(self.step.stage(arrays, self._device), 1)


class ReplicatedRingRoute(Route):
    """A ring for each device. All of them go on together, when it is time for the first one's.

    Args:
        model: the model.
        group: the devices.
        kind: the kind of step.
        source: what whole batches look like; `rows` and `counts` are left to the route.
        state: the counters of the first device, with its ring.
    """

    def __init__(
        self,
        model: StepMachinery,
        group: LocalGroup,
        kind: str,
        source: BatchSource,
        state: StepState,
    ):
        states = states_of(model, group, state)
        sources = [own_source(replica, source) for replica in group.replicas]
        half = min(ring_for(*each)[1] for each in zip(states, sources, strict=True))
        self._rows = [rows_to_compute(replica, source.batch_size) for replica in group.replicas]
        self._rings = []
        for replica, own, at in zip(group.replicas, sources, states, strict=True):
            with replica.recording():
                self._rings.append(RingRoute(model, kind, own, at, half, self))
        self.step = joined(group, [ring.step for ring in self._rings])

    def put(self, arrays: Sequence[np.ndarray]) -> None:
        for ring, rows in zip(self._rings, self._rows, strict=True):
            ring.take([array[rows] for array in arrays])
        if self._rings[0].is_due():
            self.flush()

    def flush(self) -> None:
        counts = [ring.begin_flush() for ring in self._rings]
        if counts[0]:
            self.step.run([ring.inputs for ring in self._rings], counts[0])
            for ring, count in zip(self._rings, counts, strict=True):
                ring.end_flush(count)

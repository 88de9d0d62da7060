"""Arrays as the batches of several devices of this process."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from kerascnn.distribution.local_replicas import LocalGroup
from kerascnn.training.data import ArrayData
from kerascnn.training.device_state import StepState
from kerascnn.training.feed import Feed
from kerascnn.training.replicated_step import joined, states_of
from kerascnn.training.steps import Step

if TYPE_CHECKING:
    from kerascnn.training.machinery import StepMachinery


class ReplicatedFeed:
    """A feed for each device, which all go the same way; has the methods of `Feed`.

    Each device has all the data, as each process would: an epoch in a new order takes other samples
    to it.

    Args:
        model: the model.
        group: the devices.
        kind: `"train"` or `"test"`.
        data: the arrays.
        batch_size: samples of a step on all devices together.
        state: the counters of the first device.
        generator: draws the order of each pass; `None` keeps the order of the data.
        once: whether there will be one pass.
    """

    keeps_places = True
    output_buffers = None
    circumstances = None  # it is not kept

    def __init__(
        self,
        model: StepMachinery,
        group: LocalGroup,
        kind: str,
        data: ArrayData,
        batch_size: int,
        state: StepState,
        generator: np.random.Generator | None = None,
        once: bool = False,
    ):
        self._group = group
        self._feeds: list[Feed] = []
        self._states = states_of(model, group, state)
        for replica, own in zip(group.replicas, self._states, strict=True):
            draws = generator if replica.is_first else copy.deepcopy(generator)
            part = data._slice(slice(None))  # which may be moved to its device
            with replica.recording():
                self._feeds.append(Feed(model, kind, part, batch_size, own, draws, once))
        self._first = self._feeds[0]
        self.num_batches = self._first.num_batches

    @property
    def step_seconds(self) -> float | None:
        """Returns the time of a step of a whole batch if it is known; later runs use it too."""
        return self._first.step_seconds

    @step_seconds.setter
    def step_seconds(self, value: float | None) -> None:
        self._first.step_seconds = value

    def reset(self) -> None:
        """Makes the next epoch begin a new pass."""
        for feed in self._feeds:
            feed.reset()

    def begin_epoch(self, steps: int | None) -> float:
        """Begins an epoch of a whole pass, or of `steps` batches; returns the most it can have."""
        for feed in self._feeds[1:]:
            feed.begin_own_epoch(steps)
        return self._first.begin_epoch(steps)

    def has_next(self) -> bool:
        """Tells whether the pass has another batch."""
        return self._first.has_next()

    def end_epoch(self) -> None:
        """Does nothing: the next epoch knows where this one ended."""

    def close(self) -> None:
        """Ends the pass, and frees the data on the devices."""
        for feed in self._feeds:
            feed.close()

    def plan_ahead(self) -> None:
        """Does what the next steps need while the devices work."""
        for feed in self._feeds:
            feed.plan_ahead()

    @property
    def position(self) -> dict[str, Any]:
        """Where the data is, which is the same on all devices."""
        return self._first.position

    def go_to(self, position: dict[str, Any], batches: int) -> None:
        """Goes where another feed of the same data was; see `Feed.go_to`."""
        for feed in self._feeds:
            feed.go_to(position, batches)

    def run(self, limit: int, later: bool = False) -> tuple[Step, int]:
        """Up to `limit` steps with one program; which program, and how many there were."""
        begun = [feed.begin_run(limit) for feed in self._feeds]
        # Where data comes in chunks, those of the devices may end at different batches.
        count = min(own for _, own in begun)
        step = joined(self._group, [segment.step for segment, _ in begun])
        step.run([segment.inputs for segment, _ in begun], count)
        for feed, (segment, _) in zip(self._feeds, begun, strict=True):
            feed.end_run(segment, count)
        return step, count

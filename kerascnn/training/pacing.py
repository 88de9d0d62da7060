"""How many steps to run before Python looks up: for the display, for Ctrl-C, for callbacks.

And how far steps may be enqueued ahead of a GPU where Python looks up after each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kerascnn import _core

# On a CPU, a slice of this time keeps the display moving and Ctrl-C prompt. On a GPU, each slice
# costs a wait for the device, so an epoch of up to a second is one slice, once a step's time is
# known.
_SLICE_SECONDS = {"cpu": 0.15, "cuda": 1.0}
# These are the steps of the slices before a step's time is known. The first step also makes things
# for first use.
_FIRST_SLICES = (1, 8)
# Single steps are enqueued in groups of about this time and at most this many steps. Two groups can
# be ahead of the device. That hides Python's time, and Ctrl-C still takes effect soon.
_GROUP_SECONDS = 0.02
_GROUP_STEPS = 16
# The results of a prediction or an evaluation often arrive sooner than a sleeping thread wakes up,
# so the host polls for so many seconds.
PATIENCE = 2e-3
USUAL_PATIENCE = 5e-5
# This is how often the host waits for a GPU to check whether the loss is still a number.
_LOOK_SECONDS = 0.1


class Pacer:
    """Chooses the number of steps per slice from the time that earlier steps took.

    Args:
        device: where the steps run, such as `"cuda:0"`.
        clock: the time in seconds.
        per_step: how long a step takes, where that is known from an earlier run.
    """

    def __init__(
        self,
        device: str,
        clock: Callable[[], float] = time.perf_counter,
        per_step: float | None = None,
    ):
        self._seconds = _SLICE_SECONDS[device.partition(":")[0]]
        self._clock = clock
        self._slices = 0
        self._per_step = per_step
        self._begun = 0.0

    @property
    def per_step(self) -> float | None:
        """Returns the seconds of a step, once they are known."""
        return self._per_step

    def next_slice(self) -> int:
        """Returns how many steps to run now; the time until `finished` is theirs."""
        self._begun = self._clock()
        if self._per_step is None:
            return _FIRST_SLICES[self._slices]
        return max(1, round(self._seconds / self._per_step))

    def finished(self, steps: int) -> None:
        """Notes the time since `next_slice`, in which so many steps ran."""
        elapsed = self._clock() - self._begun
        per_step = max(1e-7, elapsed / steps)
        self._slices += 1
        if self._per_step is None:
            if self._slices == len(_FIRST_SLICES):
                self._per_step = per_step
        # A slice has a cost of its own and sometimes a capture. In a short slice, such as the last
        # batch of an epoch, that is most of the time, so it does not show that steps are slow.
        elif per_step < self._per_step or elapsed > 0.5 * self._seconds:
            self._per_step = per_step


class LaunchQueue:
    """Keeps steps that are enqueued one by one within a bound, without waiting for each.

    Args:
        device: where the steps run. On a CPU a step is done when it was started.
        clock: the time in seconds.
        fences: makes two points in the device's work, for the ends of groups of steps.
    """

    def __init__(
        self,
        device: str,
        clock: Callable[[], float] = time.perf_counter,
        fences: Callable[[str], Any] = _core.Fence,
    ):
        self._waits = device != "cpu"
        self._clock = clock
        self._last: Any = fences(device) if self._waits else None
        self._before: Any = fences(device) if self._waits else None
        self._group = 1  # steps
        self._launched = 0  # steps of the group that is being enqueued
        self._ahead = 1  # steps of the previous group
        self._ended = self._looked = clock()

    def launched(self) -> None:
        """Notes an enqueued step, and waits if two groups are ahead of the device."""
        if not self._waits:
            return
        self._launched += 1
        if self._launched < self._group:
            return
        self._before.wait()
        now = self._clock()
        # Between the ends of two waits the device worked on the previous group.
        per_step = max(1e-7, (now - self._ended) / self._ahead)
        self._group = max(1, min(_GROUP_STEPS, 2 * self._group, int(_GROUP_SECONDS / per_step)))
        self._ended, self._ahead, self._launched = now, self._launched, 0
        self._last.record()
        self._last, self._before = self._before, self._last

    def may_look(self) -> bool:
        """Tells whether it is time to wait for the device and read what it has noted."""
        if not self._waits:
            return True
        now = self._clock()
        if now - self._looked < _LOOK_SECONDS:
            return False
        self._looked = now
        return True

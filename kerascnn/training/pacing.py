"""How many steps to run before Python looks up: for the display, for Ctrl-C, for callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable

# A slice of steps on a CPU keeps the display moving and Ctrl-C prompt. On a GPU, where each slice
# costs a wait for the device, an epoch of up to a second is one slice, once a step's time is known.
_SLICE_SECONDS = {"cpu": 0.15, "cuda": 1.0}
# Steps of the slices before a step's time is known: the first step also makes things for first use.
_FIRST_SLICES = (1, 8)


class Pacer:
    """Chooses the number of steps per slice from the time that earlier steps took.

    Args:
        device: where the steps run, such as `"cuda:0"`.
        clock: the time in seconds.
    """

    def __init__(self, device: str, clock: Callable[[], float] = time.perf_counter):
        self._seconds = _SLICE_SECONDS[device.partition(":")[0]]
        self._clock = clock
        self._slices = 0
        self._per_step: float | None = None
        self._begun = 0.0

    def next_slice(self) -> int:
        """How many steps to run now; the time until `finished` is theirs."""
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
        # A slice costs something by itself, and now and then a capture. In one that is short, such
        # as the last batch of an epoch, that is most of the time: it does not show that steps are
        # slow.
        elif per_step < self._per_step or elapsed > 0.5 * self._seconds:
            self._per_step = per_step

"""How many steps to run before Python looks up: for the display, for Ctrl-C, for callbacks."""

from __future__ import annotations

import time

# A slice of steps on a CPU keeps the display moving and Ctrl-C prompt. On a GPU, where each slice
# costs a wait for the device, an epoch of a second is one slice.
_SLICE_SECONDS = {"cpu": 0.15, "cuda": 1.0}
# Steps of the slices before a step's time is known: the first step also makes things for first use.
_FIRST_SLICES = (1, 8)


class Pacer:
    """Chooses the number of steps per slice from the time that earlier steps took."""

    def __init__(self, device: str):
        self._seconds = _SLICE_SECONDS[device.partition(":")[0]]
        self._measured: list[float] = []
        self._per_step: float | None = None
        self._begun = 0.0

    def next_slice(self) -> int:
        """How many steps to run now; the time until `finished` is theirs."""
        self._begun = time.perf_counter()
        if self._per_step is not None:
            return max(1, round(self._seconds / self._per_step))
        return _FIRST_SLICES[len(self._measured)]

    def finished(self, steps: int) -> None:
        per_step = max(1e-7, (time.perf_counter() - self._begun) / steps)
        self._measured.append(per_step)
        if self._per_step is None:
            if len(self._measured) == len(_FIRST_SLICES):
                self._per_step = per_step
        else:
            self._per_step = 0.5 * (self._per_step + per_step)

"""Records whatever runs in a block."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Any

from kerascnn import _core
from kerascnn.device import current
from kerascnn.profiler.events import Recording
from kerascnn.profiler.profile import Profile


class trace(Profile):  # used as `with trace() as t`
    """Records every kernel that runs in a block, in all threads.

    Where the block ends with an error, what ran up to there is kept.

    Args:
        max_events: Kernels beyond this number are counted but not recorded, with a warning.

    Raises:
        ValueError: where another trace records already, in this thread or another.
        DeviceError: where the current device is a GPU and its profiling library (CUPTI) is missing
            or refuses; says what to do. Choose the device before the block.

    >>> x = keras.ops.ones((100, 100))
    >>> with keras.profiler.trace() as t:
    ...     y = keras.ops.matmul(x, x)
    >>> [(row["op"], row["calls"]) for row in t.rows]
    [('matmul', 1.0)]
    """

    def __init__(self, max_events: int = 2_000_000) -> None:
        super().__init__()
        if isinstance(max_events, bool) or not isinstance(max_events, int) or max_events < 1:
            raise ValueError(f"max_events must be a positive integer, received {max_events!r}")
        self._max_events = max_events
        self._device = ""

    def __enter__(self) -> trace:
        self._device = current()
        start(self._device, self._max_events)
        self._recording = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._take(Recording.take(stop(self._device)))
        self.memory = memory_of(self._device)
        lost = self.recording.lost_events
        if lost:
            warnings.warn(
                f"profiler: {lost} kernels ran beyond max_events={self._max_events} and are not in "
                "the trace; record less, or allow more events",
                stacklevel=2,
            )


def start(device: str, max_events: int) -> None:
    """Starts recording; work that was enqueued before finishes first."""
    _core.synchronize(device)
    _core.start_profile(max_events, device)


def stop(device: str) -> dict[str, Any]:
    """Stops recording after the device has finished its work."""
    try:
        _core.synchronize(device)
    finally:
        record: dict[str, Any] = _core.stop_profile()
    return record


def memory_of(device: str) -> dict[str, int]:
    """Returns how much memory a device has allocated now, and at most so far."""
    stats = _core.memory_stats(device)
    return {"allocated": stats["allocated"], "peak": stats["peak"]}

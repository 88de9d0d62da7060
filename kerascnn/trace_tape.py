"""Tapes of traces: the counterpart of `_core.Tape`, which records what is computed.

A trace records everything; its tapes know which part of that is theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kerascnn import _core, dtypes

if TYPE_CHECKING:
    from kerascnn.tracing import Trace


class TraceTape:
    """Which calls of a trace gradients are taken through, and by what.

    Args:
        trace: The trace that it records of.
        persistent: Whether gradients can be taken more than once.
        watches: Whether a variable of the core is followed when it is read.
    """

    def __init__(self, trace: Trace, persistent: bool, watches: Callable[[Any], bool]) -> None:
        self.trace = trace
        self._persistent = persistent
        self._watches = watches
        self.is_recording = False
        self.reset()

    def start(self) -> None:
        self._spans.append((self.trace.graph.num_values, _NEVER))
        self.trace.tapes.append(self)
        self.is_recording = True

    def stop(self) -> None:
        if not self.is_recording:
            return
        self.trace.tapes.remove(self)
        first, _ = self._spans.pop()
        self._spans.append((first, self.trace.graph.num_values))
        self.is_recording = False

    def pause(self) -> None:
        self.stop()

    def resume(self) -> None:
        self.start()

    def reset(self) -> None:
        """Forgets all that it has recorded."""
        records = self.is_recording
        if records:
            self.stop()
        self._spans: list[tuple[int, int]] = []
        # values, and from which node on they are followed
        self._watched: list[tuple[Any, int]] = []
        self._readings: dict[Any, list[Any]] = {}  # what was read of each watched variable
        self._is_used = False
        if records:
            self.start()

    def watch(self, x: Any) -> None:
        """Follows a value, or what is read of a variable of the core from here on."""
        what = "variable" if isinstance(x, _core.Variable) else "tensor"
        if not dtypes.is_float(x.dtype):
            raise TypeError(
                f"watch: the {what} is {x.dtype} {tuple(x.shape)}, and gradients are taken by "
                f"floating {what}s only"
            )
        if not self.is_recording:
            raise ValueError(
                "watch: the tape does not record; call it inside `with GradientTape()`"
            )
        if isinstance(x, _core.Variable):
            self._readings.setdefault(x, [])
        else:
            self._watched.append((x, self.trace.graph.num_values))

    def note(self, variable: Any, reading: Any) -> None:
        """Records what is read of a variable."""
        if variable in self._readings or self._watches(variable):
            self._readings.setdefault(variable, []).append(reading)
            self._watched.append((reading, self.trace.graph.num_values))

    def watched_variables(self) -> list[Any]:
        return list(self._readings)

    def gradients(self, targets: list[Any], weights: list[Any], sources: list[Any]) -> list[Any]:
        """Returns a gradient for each source, a value or a variable of the core, or None."""
        if self._is_used and not self._persistent:
            raise ValueError(
                "GradientTape: a tape takes gradients once and then releases what it recorded; use "
                "GradientTape(persistent=True) to take several, or reset() to begin anew"
            )
        if not self._persistent:
            self.stop()
        self._is_used = True
        ends = [
            self._readings.get(x, []) if isinstance(x, _core.Variable) else [x] for x in sources
        ]
        return list(
            self.trace.graph.gradients_of(targets, weights, ends, self._spans, self._watched)
        )


_NEVER = 2**31 - 1  # larger than any number of values

"""A progress bar for custom loops."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from kerascnn.utils.io_utils import print_msg

_BOLD, _GREEN, _WHITE, _PLAIN = "\x1b[1m", "\x1b[32m", "\x1b[37m", "\x1b[0m"


class Progbar:
    """Shows how far a loop is, and the values that it reports.

    Args:
        target: Number of steps; None where it is unknown.
        width: Characters of the bar.
        verbose: 0 shows nothing, 1 a bar, 2 one line at the end.
        interval: Seconds between two drawings.
        stateful_metrics: Names of values that are shown as they are; all others are averaged over
            the steps.
        stateless_metrics: The other way round: names of values that are averaged.
        unit_name: What a step is called.

    Raises:
        ValueError: where both lists of names are given.

    Example:

    >>> import kerascnn as keras
    >>> bar = keras.utils.Progbar(2, verbose=0)
    >>> for step in range(1, 3):
    ...     bar.update(step, [("loss", 1.0 / step)])
    """

    def __init__(
        self,
        target: int | None,
        width: int = 20,
        verbose: int = 1,
        interval: float = 0.05,
        stateful_metrics: Iterable[str] | None = None,
        stateless_metrics: Iterable[str] | None = None,
        unit_name: str = "step",
    ) -> None:
        if stateful_metrics is not None and stateless_metrics is not None:
            raise ValueError(
                "Only one of `stateful_metrics` and `stateless_metrics` can be given: each says "
                "what the other values are."
            )
        self.target = target
        self.width = width
        self.verbose = verbose
        self.interval = interval
        self.unit_name = unit_name
        self.stateful_metrics: set[str] | None = None
        self.stateless_metrics: set[str] | None = None
        if stateless_metrics is not None:
            self.stateless_metrics = set(stateless_metrics)
        else:
            self.stateful_metrics = set(stateful_metrics or ())
        self._draws_over = (
            (hasattr(sys.stdout, "isatty") and sys.stdout.isatty())
            or any(name in sys.modules for name in ("ipykernel", "posix"))
            or "PYCHARM_HOSTED" in os.environ
        )
        self._seen_so_far = 0
        self._values: dict[str, list[Any]] = {}  # the sum and the number of steps for each name
        self._start = time.perf_counter()
        self._last_update = 0.0
        self._after_first_step: float | None = None
        self._shown_width = 0

    def update(
        self,
        current: int,
        values: Iterable[tuple[str, Any]] | None = None,
        finalize: bool | None = None,
    ) -> None:
        """Shows the progress after step number `current`.

        Args:
            current: How many steps are done.
            values: Pairs of a name and the value of the last step.
            finalize: Whether this was the last step; by default whether `target` is reached.
        """
        if finalize is None:
            finalize = self.target is not None and current >= self.target
        for name, value in values or ():
            self._collect(name, value, current, finalize)
        self._seen_so_far = current
        now = time.perf_counter()
        per_step = self._step_duration(current, now)
        if self.verbose == 1:
            if now - self._last_update < self.interval and not finalize:
                return
            self._draw(current, now, per_step, finalize)
        elif self.verbose == 2 and finalize and self.target:
            line = f"{self._count(current)} - {now - self._start:.0f}s"
            line += f" -{self._format_time(per_step, self.unit_name)}"
            line += self._format_values(short_negative=False) + "\n"
            print_msg(line, line_break=False)
        self._last_update = now

    def add(self, n: int, values: Iterable[tuple[str, Any]] | None = None) -> None:
        """Shows the progress after `n` further steps."""
        self.update(self._seen_so_far + n, values)

    def _collect(self, name: str, value: Any, current: int, finalize: bool) -> None:
        if self.stateful_metrics is not None:
            averages = name not in self.stateful_metrics
        else:
            averages = name in (self.stateless_metrics or ())
        if not averages or finalize:
            self._values[name] = [value, 1]
            return
        steps = max(current - self._seen_so_far, 1)
        if name not in self._values:
            self._values[name] = [value * steps, steps]
            return
        total = self._values[name]
        total[0] = total[0] + value * steps
        total[1] += steps

    def _draw(self, current: int, now: float, per_step: float, finalize: bool) -> None:
        line = "\b" * self._shown_width + "\r" if self._draws_over else "\n"
        pieces: list[tuple[str, str]] = []
        if self.target:
            done = int(self.width * current / self.target)
            pieces += [(_BOLD, self._count(current)), ("", " ")]
            pieces += [(_GREEN, "━" * done), (_WHITE, "━" * (self.width - done))]
        else:
            pieces.append(("", f"{current:7d}/Unknown"))
        if self.target and not finalize:
            left = format_duration(per_step * (self.target - current))
        else:
            left = f"{now - self._start:.0f}s"
        pieces += [("", " "), (_BOLD, left)]
        pieces.append(("", self._format_time(per_step, self.unit_name) + self._format_values()))
        for style, text in pieces:
            line += f"{style}{text}{_PLAIN}" if style and text else text
        width = sum(len(text) for _, text in pieces)
        line += " " * (self._shown_width - width)
        self._shown_width = width
        print_msg(line + "\n" if finalize else line, line_break=False)

    def _count(self, current: int) -> str:
        digits = int(math.log10(self.target or 1)) + 1
        return f"{current:{digits}d}/{self.target}"

    def _format_values(self, short_negative: bool = True) -> str:
        """Formats averages; Keras writes negative ones in short form only next to a bar."""
        text = ""
        for name, (total, steps) in self._values.items():
            value = total if isinstance(total, float) else float(np.mean(total))
            average = value / max(1, steps)
            text += f" - {name}: "
            size = abs(average) if short_negative else average
            text += f"{average:.4f}" if size > 1e-3 else f"{average:.4e}"
        return text

    def _format_time(self, time_per_unit: float, unit_name: str | None) -> str:
        if time_per_unit >= 1 or time_per_unit == 0:
            return f" {time_per_unit:.0f}s/{unit_name}"
        if time_per_unit >= 1e-3:
            return f" {time_per_unit * 1e3:.0f}ms/{unit_name}"
        return f" {time_per_unit * 1e6:.0f}us/{unit_name}"

    def _step_duration(self, current: int, now: float) -> float:
        """Returns seconds per step, without the untypical first one if there are others."""
        if not current:
            return 0.0
        if self._after_first_step is not None and current > 1:
            duration = (now - self._after_first_step) / (current - 1)
        else:
            duration = (now - self._start) / current
        if current == 1:
            self._after_first_step = now
        return duration


def format_duration(seconds: float) -> str:
    """Formats the time left: "7s", "2:05" or "1:02:05".

    >>> format_duration(7), format_duration(125), format_duration(3725)
    ('7s', '2:05', '1:02:05')
    """
    whole = int(seconds)
    if whole > 3600:
        return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"
    return f"{whole // 60}:{whole % 60:02d}" if whole > 60 else f"{whole}s"

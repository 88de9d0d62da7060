"""The progress display: a line that moves in terminals and notebooks, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from kerascnn.utils.progbar import format_duration

_BAR_WIDTH = 20
_REFRESH_SECONDS = 0.05


class ProgressDisplay:
    """Progress of one epoch, evaluation or prediction.

    Args:
        target: how many steps there will be; `None` where that is unknown.
        verbose: 0 shows nothing, 1 a line that moves in a terminal or notebook, 2 one line at
            the end.
        title: a line to begin with, such as "Epoch 1/5".
    """

    def __init__(self, target: int | None, verbose: int = 1, title: str | None = None):
        self.target = target
        self.verbose = verbose
        self._seen = 0
        self._start = time.perf_counter()
        self._first_update: tuple[int, float] | None = None
        self._last_update = self._start
        self._last_drawn = 0.0
        self._live: Any = None
        self._is_notebook = is_notebook()
        self._moves = verbose == 1 and (self._is_notebook or _is_terminal())
        # this comes first, since rich replaces stdout while a line moves
        self._stroke = bar_stroke()
        # In a notebook the title is in the cell's output that the line is redrawn in.
        self._title = title if self._moves and self._is_notebook else None
        if self._title:
            self._draw_in_notebook(_Line())
        elif title and verbose:
            print(title, flush=True)

    def update(self, seen: int, logs: Callable[[], dict]) -> None:
        """Notes step number `seen`; `logs` is called only if the display is drawn anew."""
        now = time.perf_counter()
        self._seen = seen
        self._last_update = now
        if self._first_update is None:
            self._first_update = (seen, now)
        if self._moves and now - self._last_drawn >= _REFRESH_SECONDS:
            self._last_drawn = now
            self._draw(self._line(now, dict(logs()), final=False))

    def finish(self, logs: dict) -> None:
        """Shows the last line. `logs` are final, those of validation included."""
        if not self.verbose:
            return
        if self.target is None:
            self.target = self._seen
        now = time.perf_counter()
        if self._moves:
            self._draw(self._line(now, logs, final=True))
            self.close()
        elif self.verbose == 1:
            print(self._line(now, logs, final=True).plain(), flush=True)
        else:
            print(self._summary(now, logs), flush=True)

    def close(self) -> None:
        """Ends the moving line where it is."""
        if self._live is not None and not self._is_notebook:
            self._live.stop()
        self._live = None

    def _seconds_per_step(self) -> float:
        """Leaves out the first steps if there are others, as they include first-use work."""
        if self._first_update is not None and self._seen > self._first_update[0]:
            steps, since = self._first_update
            return (self._last_update - since) / (self._seen - steps)
        return (self._last_update - self._start) / self._seen if self._seen else 0.0

    def _line(self, now: float, logs: dict, final: bool) -> _Line:
        per_step = self._seconds_per_step()
        line = _Line()
        target = self.target or 0
        if target:
            seen = target if final else self._seen
            digits = int(math.log10(target)) + 1
            line.add(f"{seen:{digits}d}/{target} ", "bold")
            done = int(_BAR_WIDTH * seen / target)
            line.add(self._stroke * done, "green")
            line.add(self._stroke * (_BAR_WIDTH - done), "bright_black")
        else:
            line.add(f"{self._seen:7d}/Unknown", "bold")
        if final or not target:
            line.add(f" {now - self._start:.0f}s", "bold")
        else:
            line.add(f" {format_duration(per_step * (target - seen))}", "bold")
        line.add(f" {format_step_time(per_step)}")
        line.add(format_logs(logs))
        return line

    def _summary(self, now: float, logs: dict) -> str:
        step_time = format_step_time(self._seconds_per_step())
        seconds = f"{now - self._start:.0f}s"
        return f"{self.target}/{self.target} - {seconds} - {step_time}{format_logs(logs)}"

    def _draw(self, line: _Line) -> None:
        if self._is_notebook:
            self._draw_in_notebook(line)
            return
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(), auto_refresh=False, redirect_stderr=False)
            self._live.start()
        self._live.update(line.rich(), refresh=True)

    def _draw_in_notebook(self, line: _Line) -> None:
        """Makes the line an output of the cell, or replaces it: a saved notebook has the last one.

        rich would need the package ipywidgets for it, and show nothing without.
        """
        title = f"{self._title}\n" if self._title else ""
        style = "white-space: pre; overflow-x: auto; line-height: normal; margin: 0"
        output = {
            "text/plain": title + line.plain(),
            "text/html": f'<pre style="{style}">{title}{line.html()}</pre>',
        }
        if self._live is None:
            from IPython.display import display

            self._live = display(output, raw=True, display_id=True)
        else:
            self._live.update(output, raw=True)


class _Line:
    """Pieces of text with styles, drawn by rich or as plain text."""

    def __init__(self) -> None:
        self._pieces: list[tuple[str, str | None]] = []

    def add(self, text: str, style: str | None = None) -> None:
        if text:
            self._pieces.append((text, style))

    def plain(self) -> str:
        return "".join(text for text, _ in self._pieces)

    def html(self) -> str:
        return "".join(_as_html(text, style) for text, style in self._pieces)

    def rich(self) -> Any:
        from rich.text import Text

        return Text.assemble(*((text, style or "") for text, style in self._pieces))


# The same colors are legible on white and on dark paper.
_STYLES = {"bold": "font-weight: bold", "green": "color: #2e9e4f", "bright_black": "color: #8a8a8a"}


def _as_html(text: str, style: str | None) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<span style="{_STYLES[style]}">{escaped}</span>' if style else escaped


def _is_terminal() -> bool:
    return hasattr(sys.stdout, "isatty") and sys.stdout.isatty()


def is_notebook() -> bool:
    """Tells whether the output is that of a notebook's cell, and not caught by the program."""
    return type(sys.stdout).__module__.partition(".")[0] == "ipykernel"


def bar_stroke() -> str:
    """Returns the character of bars, or a plain one if the output cannot show lines."""
    try:
        "━".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "="
    return "━"


def format_logs(logs: dict) -> str:
    """Formats metrics after the time: " - accuracy: 0.9312 - loss: 0.2204"; of arrays, the mean.

    >>> format_logs({"accuracy": 0.93125, "loss": 0.0002204})
    ' - accuracy: 0.9313 - loss: 2.2040e-04'
    """
    parts = []
    for name, value in logs.items():
        number = float(np.mean(value))
        digits = f"{number:.4f}" if abs(number) > 1e-3 or number != number else f"{number:.4e}"
        parts.append(f" - {name}: {digits}")
    return "".join(parts)


def format_step_time(seconds: float) -> str:
    """Formats the time of a step: "6ms/step", "85us/step" or "2s/step".

    >>> format_step_time(0.006), format_step_time(8.5e-05), format_step_time(2.2)
    ('6ms/step', '85us/step', '2s/step')
    """
    if seconds >= 1 or seconds == 0:
        return f"{seconds:.0f}s/step"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.0f}ms/step"
    return f"{seconds * 1e6:.0f}us/step"

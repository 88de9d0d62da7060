"""The results of a recording: rows, and ways to show them."""

from __future__ import annotations

import gzip
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kerascnn.profiler import report
from kerascnn.profiler.events import Recording, rows_of
from kerascnn.profiler.machine import measure_machine

if TYPE_CHECKING:
    from rich.table import Table


class Profile:
    """A record of the kernels that ran, which `trace` and `Model.profile` give.

    Attributes:
        steps: How many training steps it is the mean of; 1 for a trace.
        step_us: Microseconds of a step without the profiler, as `fit` runs it. For a trace `None`.
        memory: Bytes on the device: `allocated` when the recording ended, `peak`, the most that was
            ever allocated, and of a training step `weights`, all variables that it reads or
            writes, and `intermediate`, its results and workspaces.

    Example:

    >>> with keras.device("cpu"), keras.profiler.trace() as profile:
    ...     y = keras.ops.exp(keras.ops.convert_to_tensor([0.0, 1.0]))
    >>> isinstance(profile, keras.profiler.Profile), profile.steps
    (True, 1)
    >>> [row["op"] for row in profile.rows]
    ['exp']
    """

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self.steps = 1
        self.step_us: float | None = None
        self.memory: dict[str, int] = {}
        self._prefix = ""

    def _take(self, recording: Recording) -> None:
        self._recording = recording
        self.__dict__.pop("rows", None)

    @property
    def recording(self) -> Recording:
        """The events, one for each kernel that ran."""
        if self._recording is None:
            raise ValueError(
                "profiler: the trace has no rows yet; look at it after the `with` block has ended"
            )
        return self._recording

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each kernel of each layer and phase, in the order of first runs.

        Made for `pandas.DataFrame(profile.rows)`. The keys:

        - `phase`: "forward", "backward" or "update"; where one kernel does the work of several,
          they are joined by " + ". `layer` is the layer's path, or several of them in the same way;
          "loss", "metrics", "data" and the optimizer's name stand for what belongs to no layer.
        - `op`: the op, or the names of those in a fused one.
        - `library`: "oneDNN", "cuDNN", "cuBLASLt", "cuFFT", "pocketfft" (NumPy's), or "kerascnn"
          for the library's own kernels.
        - `kernel`: what ran, on a GPU the kernel's own name. `implementation`: what was planned,
          such as cuDNN's engine.
        - `dtype` of what it reads, and the `device`.
        - `calls`: how often it ran in a step.
        - `time_us`: from each start to its end. `busy_us`: the same without waiting for the
          kernel before in the same stream, and where kernels ran at once divided among them, so
          that the sum over all rows is the time in which the device was busy. `gap_us`: how long
          nothing ran before it.
        - `flop`, `bytes`: what it computes, and moves at least, in a step.
        - `compute_share`, `bandwidth_share`: achieved of what the machine was measured to reach
          (`measure_machine`), from 0 to about 1.
        - `memory_bytes`: its results and workspace.
        """
        rows = rows_of(self.recording, self.steps, self._prefix)
        for row in rows:
            machine = measure_machine(row["device"])
            seconds, calls = row["busy_us"] * 1e-6, row["calls"]
            row["compute_share"] = row["bandwidth_share"] = 0.0
            if seconds > 0 and row["flop"]:
                row["compute_share"] = row["flop"] / seconds / machine.compute(row["dtype"])
            if seconds > 0 and row["bytes"]:
                bandwidth = machine.bandwidth(row["bytes"] / calls)
                row["bandwidth_share"] = row["bytes"] / seconds / bandwidth
        return rows

    @property
    def busy_us(self) -> float:
        """Microseconds of a step in which some kernel ran: the sum of the rows' `busy_us`."""
        return sum(row["busy_us"] for row in rows_of(self.recording, self.steps))

    @property
    def gap_us(self) -> float:
        """Microseconds of a step between kernels, in which none ran."""
        return sum(row["gap_us"] for row in rows_of(self.recording, self.steps))

    def table(self, by: str = "kernel") -> Table:
        """A `rich` table.

        Args:
            by: "kernel" for all rows, "layer" for one row for each layer and phase, "phase" for one
                for each phase.

        Raises:
            ValueError: for another `by`.
        """
        return report.table(self, by)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Writes a page with a chart of layers and all rows; it needs nothing from elsewhere."""
        from kerascnn.profiler import html

        _write(path, html.page(self))

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes all events as a file for ui.perfetto.dev or chrome://tracing.

        It is compressed where the path ends in `.gz`.
        """
        from kerascnn.profiler import chrome

        _write(path, chrome.trace(self))

    def __str__(self) -> str:
        return report.text(self)

    def __repr__(self) -> str:
        if self._recording is None:
            return "<Profile: recording>"
        return f"<Profile: {len(self.recording.events)} kernels, {self.steps} steps>"

    def __rich__(self) -> Table:
        return self.table()


def _write(path: str | os.PathLike[str], text: str) -> None:
    data = text.encode("utf-8")
    if os.fspath(path).endswith(".gz"):
        data = gzip.compress(data)
    with open(path, "wb") as file:
        file.write(data)

"""The memory of a training step, planned without allocating it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_MOST_ROWS = 20  # rows of the printed table


@dataclass(frozen=True)
class KeptValue:
    """Values of one layer that lie in memory when a step needs the most.

    Attributes:
        layer: the layer, or several that one kernel computes for; empty for none.
        op: what computes them, such as "conv2d", or "workspace".
        dtype: their dtype.
        count: how many they are.
        bytes: what they take together.
    """

    layer: str
    op: str
    dtype: str
    count: int
    bytes: int


@dataclass(frozen=True)
class StepMemory:
    """What a training step takes on the device, in bytes; see `Model.step_memory`.

    Attributes:
        batch_size: samples of the step.
        weights: all variables that it reads or writes: weights, the optimizer's, metrics.
        intermediate: results and workspaces, which share memory, with constants and outputs.
        at_peak: what lies there when the step needs the most, the largest first.

    >>> plan = StepMemory(8, 3 << 20, 1 << 20, [KeptValue("conv", "conv2d", "float32", 2, 1 << 20)])
    >>> print(plan)
    A training step with batch_size=8 takes 4.0 MiB: weights 3.0 MiB, results 1.0 MiB.
    Results when it needs the most:
           1.0 MiB  conv: 2 x conv2d, float32
    """

    batch_size: int
    weights: int
    intermediate: int
    at_peak: list[KeptValue]

    @property
    def total(self) -> int:
        """All of it. The data comes on top: that of `fit`, and what the allocator rounds up."""
        return self.weights + self.intermediate

    def __str__(self) -> str:
        lines = [
            f"A training step with batch_size={self.batch_size} takes {_mib(self.total)}: "
            f"weights {_mib(self.weights)}, results {_mib(self.intermediate)}.",
            "Results when it needs the most:",
        ]
        for value in self.at_peak[:_MOST_ROWS]:
            what = f"{value.count} x {value.op}" if value.count > 1 else value.op
            lines.append(f"{_mib(value.bytes):>14}  {value.layer or '-'}: {what}, {value.dtype}")
        if len(self.at_peak) > _MOST_ROWS:
            rest = sum(value.bytes for value in self.at_peak[_MOST_ROWS:])
            lines.append(f"{_mib(rest):>14}  {len(self.at_peak) - _MOST_ROWS} others")
        return "\n".join(lines)


def values_at_peak(buffers: list[dict[str, Any]]) -> list[KeptValue]:
    """Returns the values in the arena at its fullest; `buffers` are `Program.memory()`."""
    if not buffers:
        return []
    changes = np.zeros(max(buffer["last"] for buffer in buffers) + 2, np.int64)
    for buffer in buffers:
        changes[buffer["first"]] += buffer["bytes"]
        changes[buffer["last"] + 1] -= buffer["bytes"]
    peak = int(np.cumsum(changes).argmax())
    groups: dict[tuple[str, str, str], list[int]] = {}
    for buffer in buffers:
        if buffer["first"] <= peak <= buffer["last"]:
            op = "workspace" if buffer["is_workspace"] else buffer["op"]
            key = (buffer["layer"], op, buffer["dtype"])
            groups.setdefault(key, []).append(buffer["bytes"])
    values = [KeptValue(*key, len(sizes), sum(sizes)) for key, sizes in groups.items()]
    return sorted(values, key=lambda value: (-value.bytes, value.layer, value.op))


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"

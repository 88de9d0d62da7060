"""Which updates are due in a recorded step, where the host decides it.

With `gradient_accumulation_steps` a step computes both, the sums of gradients and the update, and
takes what applies. Where several processes train, an update has sums over the processes in it, for
which steps that only gather should not wait. So a step then has a program for each case, and the
host, which knows how many steps an optimizer has taken, runs the one that applies.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerascnn.optimizers.optimizer import Optimizer

# For each update of a step in their order: is it due?
Case = tuple[bool, ...]


class DueUpdates:
    """What the recording of a step takes as given, and what it finds.

    Args:
        positions: how many steps each optimizer has gathered before the step; one that is not
            among them has gathered all but the last.

    Attributes:
        calls: the optimizers that gather, in the order of their updates in the step.
    """

    def __init__(self, positions: dict[Optimizer, int] | None = None):
        self._positions = positions or {}
        self.calls: list[Optimizer] = []

    def is_due(self, optimizer: Optimizer) -> bool:
        """Notes the next update of the recorded step; whether it is due."""
        self.calls.append(optimizer)
        return self.case[-1]

    @property
    def case(self) -> Case:
        """Returns which of the updates so far are due."""
        return case_of(self.calls, self._positions)

    def other_cases(self) -> list[DueUpdates]:
        """Returns what further recordings of the step take as given: each case that there is."""
        optimizers = list(dict.fromkeys(self.calls))
        found: dict[Case, DueUpdates] = {}
        for places in itertools.product(*(range(_steps_of(one)) for one in optimizers)):
            positions = dict(zip(optimizers, places, strict=True))
            found.setdefault(case_of(self.calls, positions), DueUpdates(positions))
        found.pop(self.case)
        return list(found.values())


def case_of(calls: list[Optimizer], positions: dict[Optimizer, int]) -> Case:
    """Returns which updates of a step are due.

    Args:
        calls: the optimizers, in the order of their updates.
        positions: how many steps each one has gathered before.
    """
    seen: Counter[Optimizer] = Counter()
    case = []
    for optimizer in calls:
        every = _steps_of(optimizer)
        seen[optimizer] += 1
        case.append((positions.get(optimizer, every - 1) + seen[optimizer]) % every == 0)
    return tuple(case)


def _steps_of(optimizer: Optimizer) -> int:
    assert optimizer.gradient_accumulation_steps
    return optimizer.gradient_accumulation_steps


class StepCounts:
    """How many steps optimizers have taken, which a device counts, without a look at each step.

    Args:
        calls: the optimizers, in the order of their updates in a step.
    """

    def __init__(self, calls: list[Optimizer]):
        self._calls = calls
        self._counts = {optimizer: _StepCount(optimizer) for optimizer in calls}

    def next_case(self, limit: int) -> tuple[Case, int]:
        """Returns the case of the next step, and how many in a row, up to `limit`, are alike."""
        counts = {optimizer: count.read() for optimizer, count in self._counts.items()}
        case = case_of(self._calls, counts)
        steps = 0
        while steps < limit and case_of(self._calls, counts) == case:
            steps += 1
            for optimizer in self._calls:
                counts[optimizer] += 1
        return case, steps

    def took(self, steps: int) -> None:
        """Notes that so many steps run, or wait in the device's queue."""
        for optimizer, times in Counter(self._calls).items():
            self._counts[optimizer].advance(steps * times)


class _StepCount:
    """What a device's counter will say when all steps so far have run."""

    def __init__(self, optimizer: Optimizer):
        self._optimizer = optimizer
        self._core: Any = None
        self._version = -1  # of the counter, when `_count` was known
        self._count = 0

    def read(self) -> int:
        counter = self._optimizer._iterations
        if counter.core is not self._core or counter.core.version != self._version:
            # Somebody else has written to it: the first time, or after a training was restored.
            self._count = int(counter._held()) + self._optimizer._steps_on_host
            self._core, self._version = counter.core, counter.core.version
        return self._count

    def advance(self, steps: int) -> None:
        self._count += steps
        self._version = self._core.version

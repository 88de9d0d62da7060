"""Starts processes that run cases, and collects what they say, also of those that end early."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent


class Report(NamedTuple):
    """What came of cases.

    Attributes:
        count: How many there were.
        faults: The case and what was wrong, each.
        outcomes: How often readers ended with which result.
        slowest: The most processor time, as a multiple of the bound for a file of that size.
        largest: The most memory in bytes.
    """

    count: int
    faults: list[tuple[Any, str]]
    outcomes: Counter[str]
    slowest: float
    largest: int

    def __str__(self) -> str:
        outcomes = ", ".join(f"{name} {n}" for name, n in self.outcomes.most_common())
        return (
            f"{self.count} cases ({outcomes}); at most {self.slowest:.2f} of the time and "
            f"{self.largest / 1e6:.1f} MB"
        )


def run(script: str, name: str, seed: int, count: int, folder: Path, device: str = "cpu") -> Report:
    """Runs the corpus and `count` cases; after a crash the cases that are left."""
    faults: list[tuple[Any, str]] = []
    outcomes: Counter[str] = Counter()
    slowest, largest, begin, done = 0.0, 0, 0, 0
    while True:
        inner = folder / f"{name}-{begin}"
        inner.mkdir(parents=True, exist_ok=True)
        errors = inner / "stderr"
        command = [sys.executable, str(HERE / script), name, str(seed), str(begin), str(count)]
        command += [str(inner), *([] if device == "cpu" else [device])]
        with open(errors, "wb") as stderr:
            child = subprocess.run(
                command,
                cwd=inner,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"},
                check=False,
            )
        case: Any = None
        number = begin
        for line in child.stdout.splitlines():
            entry = json.loads(line)
            if "case" in entry:
                case, number = entry["case"], entry["number"]
                continue
            case = None
            done += 1
            outcomes[entry["outcome"]] += 1
            slowest = max(slowest, entry.get("slow", 0.0))
            largest = max(largest, entry.get("peak", 0))
            if entry["fault"]:
                faults.append((entry["done"], entry["fault"]))
        if case is None and child.returncode == 0:
            break
        said = errors.read_text("utf-8", "replace")[-3000:]
        if case is None:  # it never began
            raise RuntimeError(f"the process ended with {child.returncode}: {said}")
        faults.append((case, f"the process ended with {child.returncode}: {said}"))
        done += 1
        outcomes["crash"] += 1
        begin = number + 1
    return Report(done, faults, outcomes, slowest, largest)

"""Converts the events of a recording to rows, one for each kernel of each layer and phase."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

# The names of kerascnn's own GPU kernels begin with this.
_OWN = "kerascnn::"
# These are the columns of the array of events.
CALL, KERNEL, TRACK, START, END = range(5)


class Recording(NamedTuple):
    """The recording of the core; see `_core.stop_profile`."""

    calls: list[dict[str, Any]]
    kernels: list[str]
    events: np.ndarray  # int64, (number of events, 5), in the order of their starts
    lost_events: int
    seconds: float

    @classmethod
    def take(cls, record: dict[str, Any], after: int = 0) -> Recording:
        """Returns the recording with the events that began `after` nanoseconds or later."""
        events = np.frombuffer(record["events"], np.int64).reshape(-1, 5)
        events = events[events[:, START] >= after]
        events = events[np.argsort(events[:, START], kind="stable")]
        seconds = (record["nanoseconds"] - after) * 1e-9
        return cls(record["calls"], record["kernels"], events, record["lost_events"], seconds)

    def devices(self) -> list[str]:
        """Returns the devices on which something ran, in order of first use."""
        used = dict.fromkeys(self.events[:, CALL].tolist())
        return list(dict.fromkeys(self.calls[call]["device"] for call in used))

    def of_device(self, device: str) -> np.ndarray:
        """Returns the events of a device."""
        is_here = np.array([call["device"] == device for call in self.calls], bool)
        return self.events[is_here[self.events[:, CALL]]]

    def name(self, call: int, kernel: int) -> str:
        """Returns the kernel's name: that of the GPU, or what the library reports."""
        if kernel >= 0:
            return self.kernels[kernel].removeprefix(_OWN)
        return split_description(self.calls[call]["kernel"])[1]


def split_description(description: str) -> tuple[str, str]:
    """Splits a description: "oneDNN brgconv:avx2" gives "oneDNN" and "brgconv:avx2"."""
    library, _, chosen = description.partition(" ")
    return library, chosen or library


def without_waits(events: np.ndarray) -> np.ndarray:
    """Returns a GPU's events, each from the end of those before it on its track.

    A track of a GPU is a stream, in which one kernel follows another. A kernel that starts early
    waits within itself for the one before. One that ends no later than that has no time of its own.
    """
    if len(events) == 0:
        return events
    order = np.argsort(events[:, TRACK], kind="stable")
    _, track = np.unique(events[order, TRACK], return_inverse=True)
    # With the ends of each track later than all of the track before, one maximum goes through all.
    ends = events[order, END]
    later = track * (ends.max() - ends.min() + 1)
    reached = np.maximum.accumulate(ends + later) - later
    follows = np.flatnonzero(track[1:] == track[:-1]) + 1
    result = events.copy()
    after, before = order[follows], reached[follows - 1]
    result[after, START] = np.clip(before, events[after, START], events[after, END])
    return result


def busy_shares(events: np.ndarray) -> np.ndarray:
    """Returns each event's share of the time in which something runs, in nanoseconds.

    Where `k` run at once, each gets a `k`-th of that time, so the sum is the time in which the
    device is busy.
    """
    if len(events) == 0:
        return np.zeros(0)
    starts, ends = events[:, START], events[:, END]
    bounds = np.unique(np.concatenate([starts, ends]))
    first, last = np.searchsorted(bounds, starts), np.searchsorted(bounds, ends)
    changes = np.bincount(first, minlength=len(bounds)) - np.bincount(last, minlength=len(bounds))
    active = np.cumsum(changes)[:-1]
    lengths = np.diff(bounds).astype(np.float64)
    shares = np.divide(lengths, active, out=np.zeros_like(lengths), where=active > 0)
    up_to = np.concatenate([[0.0], np.cumsum(shares)])
    result: np.ndarray = up_to[last] - up_to[first]
    return result


def gaps_before(events: np.ndarray) -> np.ndarray:
    """Returns for how many nanoseconds nothing ran before each event; 0 for the first."""
    if len(events) == 0:
        return np.zeros(0)
    reached = np.maximum.accumulate(events[:, END])
    gaps = np.zeros(len(events))
    gaps[1:] = np.maximum(events[1:, START] - reached[:-1], 0)
    return gaps


def rows_of(recording: Recording, steps: int, prefix: str = "") -> list[dict[str, Any]]:
    """A row for each kernel of each layer and phase, in order of first run; times of one step.

    Args:
        recording: What ran.
        steps: How many steps it was.
        prefix: The model's name, which paths of layers begin with and rows leave out.
    """
    rows: dict[tuple, dict[str, Any]] = {}
    for device in recording.devices():
        events = recording.of_device(device)
        works = events if device == "cpu" else without_waits(events)
        shares, gaps = busy_shares(works), gaps_before(events)
        durations, worked = ((x[:, END] - x[:, START]).astype(np.float64) for x in (events, works))
        keys = events[:, CALL] * (len(recording.kernels) + 1) + events[:, KERNEL] + 1
        kinds, firsts, which = np.unique(keys, return_index=True, return_inverse=True)
        counts = np.bincount(which, minlength=len(kinds))
        sums = [np.bincount(which, x, minlength=len(kinds)) for x in (durations, shares, gaps)]
        costs = _main_kernels(
            events[firsts, CALL], np.bincount(which, worked, minlength=len(kinds))
        )
        for i in np.argsort(firsts, kind="stable"):
            call, kernel = int(events[firsts[i], CALL]), int(events[firsts[i], KERNEL])
            row = _row(recording, call, kernel, prefix)
            key = tuple(row.values())
            row = rows.setdefault(key, row | dict.fromkeys(_NUMBERS, 0.0))
            row["calls"] += counts[i] / steps
            for name, total in zip(("time_us", "busy_us", "gap_us"), sums, strict=True):
                row[name] += total[i] / steps * 1e-3
            if costs[i]:
                info = recording.calls[call]
                row["flop"] += info["flop"] * counts[i] / steps
                row["bytes"] += info["bytes"] * counts[i] / steps
                row["memory_bytes"] = max(row["memory_bytes"], info["memory_bytes"])
    return [
        {name: float(value) if name in _NUMBERS else value for name, value in row.items()}
        for row in rows.values()
    ]


_NUMBERS = ("calls", "time_us", "busy_us", "gap_us", "flop", "bytes", "memory_bytes")


def _main_kernels(calls: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Finds the longest kernel of each call, for which the whole result of the call counts."""
    longest: dict[int, int] = {}
    for i, call in enumerate(calls.tolist()):
        if call not in longest or times[i] > times[longest[call]]:
            longest[call] = i
    result = np.zeros(len(calls), bool)
    result[list(longest.values())] = True
    return result


def _row(recording: Recording, call: int, kernel: int, prefix: str) -> dict[str, Any]:
    info = recording.calls[call]
    library, chosen = split_description(info["kernel"])
    if kernel >= 0 and recording.kernels[kernel].startswith(_OWN):
        library = "kerascnn"  # this kernel runs besides the library's for the same op
    return {
        "phase": info["phase"],
        "layer": without_prefix(info["layer"], prefix),
        "op": info["op"],
        "library": library,
        "kernel": recording.name(call, kernel),
        "implementation": chosen,
        "dtype": info["dtype"],
        "device": info["device"],
    }


def without_prefix(layer: str, prefix: str) -> str:
    """Removes the model's name from the beginning of paths."""
    if not prefix:
        return layer
    parts = [part.removeprefix(prefix + "/") for part in layer.split(" + ")]
    return " + ".join(parts)

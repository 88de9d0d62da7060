"""Who notices that a process is missing: a thread in each that no mpirun watches.

A GPU that waits for one of another process waits for ever, and the host that waits for the GPU with
it. So each process says every second that it is alive and how far its GPU is, and process 0 judges.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kerascnn.distribution import star

_PERIOD = 1.0  # seconds between signs of life
_READ_SECONDS = 5.0  # in which a message has come whose first byte is there
# Of the time that a process is waited for, so much goes by before it is judged: with what follows
# the others end in that time.
_PART = 0.9
# So long may whoever waits take to see the error, before this thread ends the process.
_GRACE = 10.0


@dataclass
class State:
    """What is known of a process."""

    seen: float  # when it said something
    has_left: bool = False  # its script has come to its end
    meetings: dict[str, Any] = field(default_factory=lambda: {"started": 0, "waiting": 0.0})


def judge(states: dict[int, State], patience: float, now: float, name: Callable[[int], str]) -> str:
    """Says why the processes can't go on, or nothing.

    Args:
        states: What is known of each process.
        patience: How many seconds one is waited for.
        now: The time, by the clock of `State.seen`.
        name: Returns how a process is named.
    """
    more = "If it only takes long, set KERASCNN_DISTRIBUTION_TIMEOUT to more seconds."
    for rank, state in states.items():
        silent = now - state.seen
        if failure := state.meetings.get("failure"):
            return f"NCCL has failed in {name(rank)}: {failure}"
        if not state.has_left and silent > patience:
            return (
                f"No sign of life came from {name(rank)} for {silent:.0f} seconds: it hangs, is "
                f"stopped, or can't be reached. {more}"
            )
    waiting = {r: s for r, s in states.items() if s.meetings["waiting"] > patience}
    if not waiting:
        return ""
    rank, state = max(waiting.items(), key=lambda item: item[1].meetings["waiting"])
    counts = {r: s.meetings["started"] for r, s in states.items()}
    text = (
        f"The GPU of {name(rank)} has waited for {state.meetings['waiting']:.0f} seconds in one of "
        f"the {counts[rank]} sums over the processes that it was given"
    )
    late = [r for r, count in counts.items() if count < counts[rank]]
    if not late:
        return f"{text}, and so were the others. NCCL_DEBUG=INFO lets NCCL say more. {more}"
    parts = [
        f"{name(r)} has {'left after' if states[r].has_left else 'started only'} {counts[r]}"
        for r in late
    ]
    return f"{text}; {', '.join(parts)}: it hangs, has ended or does something else. {more}"


class Watch:
    """The thread of one process.

    Args:
        connections: What connects the processes.
        patience: How many seconds a process is waited for.
        meetings: Returns how far the GPU is, see `_core.gpu_meetings`.
        give_up: Makes whoever waits for the GPU fail, see `_core.give_up_gpus`.
        grace: How many seconds they may take to see it.
    """

    def __init__(
        self,
        connections: star.Star,
        patience: float,
        meetings: Callable[[], dict[str, Any]],
        give_up: Callable[[str], None],
        grace: float = _GRACE,
    ):
        self._star = connections
        self._patience = patience
        self._meetings = meetings
        self._give_up = give_up
        self._grace = grace
        self._lock = threading.Lock()  # for sending: the main thread says when it ends
        now = time.monotonic()
        self._states = {rank: State(now) for rank in range(connections.size)}
        self._open = dict(connections.signs)
        connections.is_watched = True
        self._is_leaving = False
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="kerascnn-watch", daemon=True)

    def start(self) -> None:
        """Begins to watch."""
        self._thread.start()

    # The thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        said = 0.0
        while True:
            # It hears before it judges: what others have said may wait, where this process was held
            # up itself.
            if reason := self._hear(self._ready(0.0)):
                break
            now = time.monotonic()
            if now - said >= min(_PERIOD, self._patience / 4):
                said = now
                if reason := self._look(now):
                    break
            if self._is_stopped or (self._is_leaving and self._is_over()):
                return
            self._ready(min(0.2, self._patience / 8))
        self._fail(reason)

    def _ready(self, seconds: float) -> list[int]:
        """Waits until somebody has said something; returns the processes."""
        sockets = {connection.fileno(): rank for rank, connection in self._open.items()}
        ready, _, _ = select.select(list(sockets), [], [], seconds)
        return [sockets[descriptor] for descriptor in ready]

    def _look(self, now: float) -> str:
        """Notes and says how far this process is; returns why it can't go on."""
        own = self._states[self._star.rank]
        own.seen, own.meetings = now, self._meetings()
        if self._star.rank == 0:
            return judge(self._states, _PART * self._patience, now, self._star.name)
        self._send({"meetings": own.meetings})
        # Process 0 sees what others do. Without it each judges for itself.
        later = self._patience + 2 * _PERIOD if 0 in self._open else 0.0
        mine = {self._star.rank: own}
        return judge(mine, self._patience + later, now, self._star.name)

    def _hear(self, ranks: list[int]) -> str:
        for rank in ranks:
            state = self._states[rank]
            try:
                deadline = time.monotonic() + _READ_SECONDS
                said = json.loads(star.receive(self._open[rank], deadline))
            except (star.Ended, TimeoutError, ValueError):
                self._open.pop(rank).close()
                if state.has_left:
                    continue
                name = self._star.name(rank)
                return f"{name[0].upper()}{name[1:]} has ended, or can't be reached any more."
            state.seen = time.monotonic()
            state.meetings = said.get("meetings", state.meetings)
            state.has_left = state.has_left or "left" in said
            self._is_stopped = self._is_stopped or "over" in said
            if "failed" in said:
                return str(said["failed"])
        return ""

    def _is_over(self) -> bool:
        """Tells whether all have left, which the first process says to the others."""
        if self._star.rank > 0:
            return not self._open
        if not all(state.has_left for state in self._states.values()):
            return False
        self._send({"over": True})
        return True

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        with self._lock:
            for connection in list(self._open.values()):
                with contextlib.suppress(OSError):  # an end is noticed where it is heard
                    star.send(connection, data, _READ_SECONDS)

    def _fail(self, reason: str) -> None:
        """Makes whoever waits fail; where nobody sees it, ends the process."""
        if self._star.rank == 0:
            self._send({"failed": reason})
        text = f"Process {self._star.rank} of {self._star.size} can't go on: {reason}"
        self._give_up(text)
        self._star.break_off(text)
        end = time.monotonic() + (0.0 if self._is_leaving else self._grace)
        while time.monotonic() < end:
            if self._star.is_reported or self._meetings()["is_reported"]:
                return
            time.sleep(0.05)
        print(f"kerascnn: {text}", file=sys.stderr, flush=True)
        os._exit(1)

    # The main thread ------------------------------------------------------------------------------

    def tell_failure(self, failure: str) -> None:
        """Says to all that this process ends because of an error."""
        name = self._star.name(self._star.rank)
        self._send({"failed": f"{name[0].upper()}{name[1:]} failed with {failure}"})

    def leave(self) -> None:
        """Says that the script is over, and waits until those of the others are.

        Until then other GPUs may still look at this one's memory.
        """
        if not self._thread.is_alive():
            return
        self._states[self._star.rank].has_left = True
        self._send({"left": True})
        self._is_leaving = True
        self._thread.join()

    def stop(self) -> None:
        """Ends the thread without a word."""
        self._is_stopped = True
        self._thread.join()

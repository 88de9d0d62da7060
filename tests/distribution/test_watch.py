"""Who notices that a process is missing; threads play the processes, and nothing plays GPUs."""

from __future__ import annotations

import select
import socket
import threading
import time

import pytest

from kerascnn.distribution import watch as watch_module
from kerascnn.distribution.watch import State, Watch, judge

from .conftest import free_port
from .test_star import LONG, meet, places


def name(rank):
    return f"process {rank}"


def states(**differences):
    found = {rank: State(100.0) for rank in range(3)}
    for state in found.values():
        state.meetings = {"started": 7, "waiting": 0.0, "failure": ""}
    for key, (field, value) in differences.items():
        state = found[int(key.removeprefix("of_"))]
        if field in state.meetings:
            state.meetings[field] = value
        else:
            setattr(state, field, value)
    return found


def waiting(rank, seconds, **more):
    found = states(**more)
    found[rank].meetings["waiting"] = seconds
    return found


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (states(), ""),
        (waiting(0, 29.0), ""),
        (states(of_1=("seen", 69.0)), "No sign of life came from process 1 for 31 seconds: it"),
        (
            waiting(0, 31.0, of_2=("started", 5)),
            "The GPU of process 0 has waited for 31 seconds in one of the 7 sums over the "
            "processes that it was given; process 2 has started only 5: it hangs",
        ),
        (
            states(of_2=("failure", "a broken link")),
            "NCCL has failed in process 2: a broken link",
        ),
        (waiting(0, 31.0), "that it was given, and so were the others. NCCL_DEBUG=INFO"),
    ],
)
def test_verdicts(found, expected):
    said = judge(found, 30.0, 100.0, name)
    assert said == expected if not expected else expected in said


def test_one_that_has_left_may_be_silent_but_is_named_where_others_wait():
    found = waiting(1, 40.0, of_0=("seen", 0.0))
    found[0].has_left = True
    found[0].meetings["started"] = 3
    assert "; process 0 has left after 3: it hangs, has ended" in judge(found, 30.0, 100.0, name)
    found[1].meetings["waiting"] = 0.0
    assert judge(found, 30.0, 100.0, name) == ""


class Gpu:
    """What the core tells of a GPU, and notes what it is told."""

    def __init__(self):
        self.meetings = {"started": 0, "ended": 0, "waiting": 0.0, "is_reported": False}
        self.reason = None
        self.given_up = threading.Event()

    def give_up(self, reason):
        self.reason = reason
        self.meetings["is_reported"] = True  # whoever waited for it sees the reason
        self.given_up.set()


@pytest.fixture
def watches():
    """Returns a function that makes the watches of three processes with their GPUs."""
    stars = meet(places(3, [free_port()]))
    gpus = [Gpu() for _ in stars]
    running = []

    def start(patience=LONG, started=(0, 0, 0)):
        for gpu, count in zip(gpus, started, strict=True):
            gpu.meetings["started"] = count
        made = [
            Watch(one, patience, lambda gpu=gpu: gpu.meetings, gpu.give_up)
            for one, gpu in zip(stars, gpus, strict=True)
        ]
        for watch in made:
            watch.start()
            running.append(watch)
        return made, gpus, stars

    yield start
    for watch in running:
        watch.stop()
    for one in stars:
        one.break_off("the test is over")
        one.close()


class Clock:
    """What takes the place of `time` for the watches: a test may set it forward."""

    def __init__(self):
        self.ahead = 0.0

    def monotonic(self):
        return time.monotonic() + self.ahead

    def sleep(self, seconds):
        time.sleep(seconds)


@pytest.fixture
def clock(monkeypatch):
    """The watches' clock. No test of them waits for time to go by, nor hangs on how fast it does.

    They are as patient as `LONG`, which no thread is held up for.
    """
    made = Clock()
    monkeypatch.setattr(watch_module, "time", made)
    return made


def reasons(gpus):
    """What the GPUs were told, once all of them were."""
    for gpu in gpus:
        assert gpu.given_up.wait(LONG)
    return [gpu.reason for gpu in gpus]


@pytest.mark.parametrize("lost", [0, 2])
def test_one_that_has_ended(watches, lost):
    made, gpus, stars = watches()
    made[lost].stop()  # or it would take the ends of its own connections for those of the others
    for connection in stars[lost].signs.values():
        connection.shutdown(socket.SHUT_RDWR)
    others = [rank for rank in range(3) if rank != lost]
    for rank, reason in zip(others, reasons([gpus[rank] for rank in others]), strict=True):
        assert reason.startswith(f"Process {rank} of 3 can't go on: Process {lost} on ")
        assert reason.endswith("has ended, or can't be reached any more.")
        with pytest.raises(ConnectionError, match="can't be reached any more"):
            stars[rank].gather(b"", LONG)


@pytest.mark.parametrize("failing", [0, 1])
def test_one_that_fails_says_why(watches, failing):
    made, gpus, _ = watches()
    made[failing].tell_failure("ArithmeticError: out of luck")
    others = [gpu for rank, gpu in enumerate(gpus) if rank != failing]
    for reason in reasons(others):
        assert f"Process {failing} on" in reason
        assert "failed with ArithmeticError: out of luck" in reason


@pytest.mark.parametrize("late", [0, 2])
def test_one_that_others_wait_for(watches, late):
    made, gpus, _ = watches(started=[3 if rank == late else 9 for rank in range(3)])
    known = made[0]._states
    while not all(known[rank].meetings["started"] for rank in range(3)):
        time.sleep(0.01)
    gpus[1].meetings["waiting"] = LONG + 1
    for reason in reasons(gpus):
        assert f"; process {late} on " in reason
        assert "has started only 3: it hangs, has ended or does something else" in reason


def test_one_that_is_silent(watches, clock):
    made, gpus, _ = watches()
    made[2]._send = lambda message: None
    known = made[0]._states
    while not gpus[0].given_up.is_set() and clock.ahead < 3 * LONG:
        clock.ahead += LONG / 8
        begun = clock.monotonic()
        while known[1].seen < begun and not gpus[0].given_up.is_set():  # it is not silent
            time.sleep(0.01)
    reason = reasons(gpus[:2])[0]
    assert "No sign of life came from process 2" in reason


def test_who_was_held_up_itself_hears_before_it_judges(watches, clock):
    """As where a call into C keeps Python's lock: what the others have said is there by then."""
    made, gpus, _ = watches()
    held_up = made[0]
    hear = held_up._ready

    def late(seconds):
        held_up._ready = hear
        clock.ahead += 2 * LONG
        for connection in held_up._open.values():
            assert select.select([connection], [], [], LONG)[0]
        return hear(seconds)

    held_up._ready = late
    while held_up._ready is late:
        time.sleep(0.01)
    known = held_up._states
    heard = [known[rank].seen for rank in (1, 2)]
    while [known[rank].seen for rank in (1, 2)] == heard:
        time.sleep(0.01)
    assert [gpu.reason for gpu in gpus] == [None] * 3


def test_leaving_one_after_another_is_no_failure(watches):
    made, gpus, _ = watches()
    leaving = []
    for watch in (made[0], made[2], made[1]):
        assert all(thread.is_alive() for thread in leaving)  # each waits for the others
        leaving.append(threading.Thread(target=watch.leave))
        leaving[-1].start()
        time.sleep(0.05)
    for thread in leaving:
        thread.join(LONG)
        assert not thread.is_alive()
    assert [gpu.reason for gpu in gpus] == [None] * 3

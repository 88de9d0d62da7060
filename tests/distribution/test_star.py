"""Connections of all processes with the first one; threads play the processes."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time

import pytest

from kerascnn.distribution import star
from kerascnn.distribution.launch import World

from .conftest import free_port

# Far longer than anything here takes: no test waits for it.
LONG = 60.0


def in_threads(functions):
    """What the functions return, or the errors that they raise."""
    found = [None] * len(functions)

    def run(i, function):
        try:
            found[i] = function()
        except Exception as error:
            found[i] = error

    threads = [threading.Thread(target=run, args=item) for item in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()
    return found


def meet(places, patience=LONG):
    return in_threads([lambda place=place: star.meet(place, patience) for place in places])


def places(size, ports, **more):
    return [star.Place(rank, size, "127.0.0.1", ports, **more) for rank in range(size)]


@pytest.fixture
def stars():
    made = meet(places(3, [free_port()]))
    yield made
    for one in made:
        one.break_off("the test is over")
        one.close()


def test_all_get_what_all_have(stars):
    for size in (0, 5, 100_000):
        data = [bytes([rank]) * (size + rank) for rank in range(3)]
        pairs = zip(stars, data, strict=True)
        calls = [lambda one=one, own=own: one.gather(own, LONG) for one, own in pairs]
        assert in_threads(calls) == [data] * 3
    assert [one.size for one in stars] == [3] * 3
    assert stars[1].name(2) == f"process 2 on {socket.gethostname()}"


@pytest.mark.parametrize("late", [[0], [1], [1, 2]])
def test_who_is_late_is_named_in_all_others(stars, late, monkeypatch):
    # The others wait for what process 0 finds out, however late that is itself, if it is not it.
    monkeypatch.setattr(star, "_GRACE", 0.2 if 0 in late else LONG)
    here = [one for one in stars if one.rank not in late]
    found = in_threads([lambda one=one: one.gather(b"", 0.2) for one in here])
    for one, error in zip(here, found, strict=True):
        assert isinstance(error, TimeoutError)
        assert "has waited for 0.2 seconds for " in str(error)
        for rank in range(3):
            assert (f"for process {rank} on" in str(error)) == (rank == late[0]), error
        assert "KERASCNN_DISTRIBUTION_TIMEOUT" in str(error)
        assert one.is_reported
        with pytest.raises(ConnectionError, match="has waited for"):
            one.gather(b"", LONG)


@pytest.mark.parametrize("lost", [0, 2])
def test_who_has_ended_is_named_in_all_others(stars, lost):
    stars[lost].break_off("it ends")
    here = [one for one in stars if one.rank != lost]
    for error in in_threads([lambda one=one: one.gather(b"", LONG) for one in here]):
        assert isinstance(error, ConnectionError)
        assert f"rocess {lost} on {socket.gethostname()} has ended." in str(error)


@pytest.mark.parametrize("rank", [0, 1])
def test_who_watches_knows_better_why_a_connection_ended(stars, rank, monkeypatch):
    """Process 0 breaks off because of process 2, say: for the others that is not the reason."""
    monkeypatch.setattr(star, "_REASON_SECONDS", LONG)
    one = stars[rank]
    one.is_watched = True

    def watch():
        for other in stars:
            if other is not one:
                other.break_off("process 2 hangs")
        time.sleep(0.2)  # in which what ends too early does so
        one.break_off("process 2 hangs")

    error, _ = in_threads([lambda: one.gather(b"", LONG), watch])
    assert isinstance(error, ConnectionError)
    assert str(error) == "process 2 hangs"


def test_breaking_off_ends_a_gathering_with_the_reason(stars):
    threading.Timer(0.1, stars[1].break_off, ["for a reason"]).start()
    with pytest.raises(ConnectionError, match="^for a reason$"):
        stars[1].gather(b"", LONG)


def test_different_numbers_of_processes(monkeypatch):
    monkeypatch.setattr(star, "_LINGER_SECONDS", LONG)  # until all have come
    port = free_port()
    of_two, of_three = places(2, [port]), places(3, [port])
    for error in meet([of_three[0], of_two[1], of_three[2]]):
        assert isinstance(error, ValueError)
        assert "was told of 3 processes, process 1 on" in str(error)
        assert str(error).endswith("of 2. Start all with the same number.")


def test_two_processes_of_one_number():
    port = free_port()
    first, other, _ = places(3, [port])
    for error in meet([first, other, other]):
        assert isinstance(error, ValueError)
        assert "Two processes were told that they are process 1 of 3" in str(error)


def test_an_error_is_heard_by_one_that_is_only_half_there():
    """Process 0 listens no more when such a process looks for it the second time."""
    place = star.Place(1, 2, "127.0.0.1", [free_port()])
    server = star.listen(place)

    def refuse():
        first, _ = server.accept()
        with first:
            star.send(first, star._greeting(place))
            star.receive(first, time.monotonic() + LONG)
            server.close()
            star.send(first, b'{"error": "there are too many", "is_value": true}')

    _, error = in_threads([refuse, lambda: star.meet(place, LONG)])
    assert isinstance(error, ValueError)
    assert str(error) == "Process 1 of 2 can't join: there are too many"


def test_a_process_does_not_take_itself_for_the_first(monkeypatch):
    """Who connects gets any free port, so also the one that it looks for: then nobody waits."""
    monkeypatch.setattr(star, "_GREETING_SECONDS", 20 * LONG)
    first, other = places(2, [free_port()])
    itself = socket.socket()
    itself.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    itself.bind((other.host, other.ports[0]))
    itself.connect(itself.getsockname())
    connect, found = socket.create_connection, [itself]
    monkeypatch.setattr(
        socket, "create_connection", lambda *where: found.pop() if found else connect(*where)
    )
    made = in_threads([lambda: star.meet(other, LONG), lambda: star.meet(first, LONG)])
    assert [one.rank for one in made] == [1, 0]
    assert itself.fileno() == -1
    for one in made:
        one.close()


def test_one_that_does_not_come(monkeypatch):
    class Impatient(star._Host):
        """Waits no longer when process 1 is there."""

        def _accept(self, deadline):
            super()._accept(time.monotonic() if self._missing() == [2] else deadline)

    monkeypatch.setattr(star, "_Host", Impatient)
    first, other, _ = places(3, [free_port()])
    for error in meet([first, other]):
        assert isinstance(error, TimeoutError)
        assert "Of 3 processes 2 did not come to process 0, which waits on" in str(error)


def test_a_first_one_that_does_not_come(monkeypatch):
    monkeypatch.setattr(star, "_START", 1)
    port = free_port()
    with pytest.raises(TimeoutError, match=f"did not find process 0 at 127.0.0.1:{port}: "):
        star.meet(star.Place(1, 2, "127.0.0.1", [port]), 0.2)


def test_somebody_else_at_a_port(monkeypatch):
    """The next port is taken; those who speak another language are sent away."""
    monkeypatch.setattr(star, "_GREETING_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        taken, port = silent.getsockname()[1], free_port()
        server = star.listen(star.Place(0, 2, "127.0.0.1", [taken, port]))
        assert server.getsockname()[1] == port
        first, other = places(2, [taken, port])

        def stranger():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as s:
                s.sendall(b"GET / HTTP/1.1\r\n\r\n" * 8)
                s.recv(1)

        found = in_threads(
            [
                stranger,
                lambda: star.meet(first, LONG, server),
                lambda: star.meet(other, LONG),
            ]
        )
        calls = [lambda one=one: one.gather(b"x", LONG) for one in found[1:]]
        assert in_threads(calls) == [[b"x", b"x"]] * 2
        for one in found[1:]:
            one.close()


def test_a_port_that_is_taken():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"can't listen at 127.0.0.1:{port}, where the others"):
            star.meet(star.Place(0, 2, "127.0.0.1", [port]), LONG)


def test_one_of_a_start_before_is_not_taken(monkeypatch):
    monkeypatch.setattr(star, "_START", 1)
    port = free_port()
    server = star.listen(star.Place(0, 2, "127.0.0.1", [port]))
    old = star.Place(1, 2, "127.0.0.1", [port], "1")
    first, other = places(2, [port], attempt="2")
    first_thread = [lambda: star.meet(first, LONG, server)]
    left = []

    def one_after_another():
        with pytest.raises(TimeoutError, match="something else listens there"):
            star.meet(old, 0.1)
        left.append(old)
        return star.meet(other, LONG)

    found = in_threads([*first_thread, one_after_another])
    assert [one.rank for one in found] == [0, 1]
    assert left == [old]
    for one in found:
        one.close()


def test_places_are_what_launchers_say():
    world = World("torchrun", 1, 4, False, "10.0.0.1", (29501, 29502), "run/2")
    assert star.place_of(world) == (1, 4, "10.0.0.1", (29501, 29502), "run/2")
    for nowhere in (World("torchrun", 1, 4, False), world._replace(ports=())):
        with pytest.raises(
            RuntimeError, match="torchrun says .* not where they can meet. Give the"
        ):
            star.place_of(nowhere)


def test_process_0_ends_last(stars):
    connections = [one._objects[0].fileno() for one in stars[1:]]
    for one in stars[1:]:
        one.outlive(0.0)
    waiting = threading.Thread(target=stars[0].outlive, args=(LONG,))
    waiting.start()
    for connection in connections:
        assert waiting.is_alive()
        os.close(connection)
    waiting.join(LONG)
    assert not waiting.is_alive()

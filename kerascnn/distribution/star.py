"""Connections of all processes with the first one, for what goes between their hosts.

Where GPUs sum by NCCL, processes still tell each other Python's objects, and whether they are
alive. Each has two connections with process 0: one for objects, and one for signs of life, which
another thread uses. All of it is for a network whose machines trust one another.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import platform
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from kerascnn.distribution.launch import World

_HEADER = struct.Struct(">4sQ")
_MAGIC = b"kcn1"
_GREETING_SECONDS = 5.0  # after which a port is somebody else's
# In which who was greeted says who it is: one that is held up meanwhile can't begin anew.
_HELLO_SECONDS = 30.0
_PAUSE = 0.05  # seconds between attempts to connect
_LINGER_SECONDS = 2.0  # in which the first process tells an error to those that are late
# Starting takes so many times as long as processes wait for one another in a step.
_START = 10
# Process 0 finds out who is late, and tells the others, which wait for so many seconds longer.
_GRACE = 5.0
# In which the thread that watches says why a connection has ended.
_REASON_SECONDS = 5.0
# What is not larger goes with its header, so that who sends it can't be held up in between.
_SMALL_BYTES = 1 << 16
_MOST_BYTES = 1 << 36


class Place(NamedTuple):
    """A process among those that meet."""

    rank: int
    size: int
    host: str  # of process 0
    ports: Sequence[int]  # at one of which it listens
    attempt: str = ""  # what other starts of the same processes don't have


def place_of(world: World) -> Place:
    """This process' place, by what its launcher says.

    Raises:
        RuntimeError: where nothing says where process 0 is.
    """
    if world.host is None or not world.ports:
        raise RuntimeError(
            f"{world.launcher} says that there are {world.size} processes, but not where they can "
            "meet. Give the address of process 0, with a port that is free there: "
            "job_addresses='host:port' or KERAS_DISTRIBUTION_JOB_ADDRESSES=host:port. Or start "
            "them with torchrun, mpirun or srun."
        )
    return Place(world.rank, world.size, world.host, world.ports, world.attempt)


class Ended(ConnectionError):
    """The process at the other end has closed the connection."""


def send(connection: socket.socket, data: bytes, seconds: float | None = None) -> None:
    """Sends one message."""
    connection.settimeout(seconds)
    header = _HEADER.pack(_MAGIC, len(data))
    try:
        if len(data) <= _SMALL_BYTES:
            connection.sendall(header + data)
        else:
            connection.sendall(header)
            connection.sendall(data)
    except TimeoutError:
        raise
    except OSError as error:
        raise Ended(str(error)) from error


def receive(connection: socket.socket, deadline: float) -> bytes:
    """Returns the next message.

    Raises:
        TimeoutError: where it is not there by `deadline`, of `time.monotonic()`.
        Ended: where the connection ends before, or something else speaks there.
    """
    magic, size = _HEADER.unpack(_receive_exactly(connection, _HEADER.size, deadline))
    if magic != _MAGIC or size > _MOST_BYTES:
        raise Ended("something that is not kerascnn speaks there")
    return _receive_exactly(connection, size, deadline)


def _receive_exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        connection.settimeout(max(1e-3, deadline - time.monotonic()))
        try:
            count = connection.recv_into(view[at:])
        except TimeoutError:
            raise
        except OSError as error:
            raise Ended(str(error)) from error
        if count == 0:
            raise Ended("the connection was closed")
        at += count
    return bytes(data)


class Star:
    """What connects the processes.

    Args:
        place: This process' place.
        objects: The connections for objects: of process 0 with each other one, of others with it.
        signs: Those for signs of life.
        nodes: The names of all machines, by process.
    """

    def __init__(
        self,
        place: Place,
        objects: dict[int, socket.socket],
        signs: dict[int, socket.socket],
        nodes: Sequence[str],
    ):
        self.rank, self.size = place.rank, place.size
        self.signs = signs
        self.nodes = list(nodes)
        self.is_reported = False  # whether whoever gathers was told why that can't go on
        self.is_watched = False  # whether a thread will say by `break_off` that a process ended
        self._objects = objects
        self._broken: str | None = None
        self._has_reason = threading.Event()

    def name(self, rank: int) -> str:
        """Returns how a process is named in errors."""
        return f"process {rank} on {self.nodes[rank]}"

    def gather(self, data: bytes, patience: float) -> list[bytes]:
        """The messages of all processes, in their order.

        Raises:
            TimeoutError: in all processes, where one has not come after so many seconds.
            ConnectionError: in all processes, where one has ended, or where they were given up.
        """
        if self._broken is not None:
            self._raise(ConnectionError(self._broken))
        try:
            if self.rank == 0:
                return self._gather_first(data, patience)
            return self._gather_other(data, patience)
        except (TimeoutError, Ended) as error:
            self._broken = self._broken or str(error)
            kind = TimeoutError if isinstance(error, TimeoutError) else ConnectionError
            self._raise(kind(self._broken))
            raise AssertionError from None

    def _wait_for_reason(self) -> None:
        """Returns when it is known why a connection has ended.

        Process 0 breaks off where any process has ended, so that its own end seems to be the
        reason. The thread that watches is told the right one, and may be a moment later.
        """
        if self.is_watched:
            self._has_reason.wait(_REASON_SECONDS)

    def _raise(self, error: Exception) -> None:
        self.is_reported = True
        raise error from None

    def _gather_first(self, data: bytes, patience: float) -> list[bytes]:
        deadline = time.monotonic() + patience
        found = {0: data}
        late, lost = [], []
        for rank, connection in sorted(self._objects.items()):
            try:
                found[rank] = receive(connection, deadline)
            except TimeoutError:
                late.append(rank)
            except Ended:
                lost.append(rank)
        if late or lost:
            text = self._late(late, patience) if late else f"{self._names(lost)} ended."
            if not late:
                self._wait_for_reason()
                text = self._broken or text
            text = text[0].upper() + text[1:]
            self._answer({"error": text, "is_late": bool(late)})
            raise TimeoutError(text) if late else Ended(text)
        everyones = [found[rank] for rank in range(self.size)]
        self._answer({"all": everyones})
        return everyones

    def _answer(self, answer: dict[str, Any]) -> None:
        message = pickle.dumps(answer)
        for connection in self._objects.values():
            with contextlib.suppress(OSError):  # who has ended is noticed by its signs
                send(connection, message)

    def _names(self, ranks: Sequence[int]) -> str:
        names = ", ".join(self.name(rank) for rank in ranks)
        return f"{names} {'has' if len(ranks) == 1 else 'have'}"

    def _late(self, ranks: Sequence[int], patience: float) -> str:
        return (
            f"process {self.rank} of {self.size} has waited for {patience:g} seconds for "
            f"{', '.join(self.name(rank) for rank in ranks)}, which hangs, has ended or does "
            "something else. If it only takes long, set KERASCNN_DISTRIBUTION_TIMEOUT to more "
            "seconds."
        )

    def _gather_other(self, data: bytes, patience: float) -> list[bytes]:
        first = self._objects[0]
        try:
            send(first, data, patience)
            answer = pickle.loads(receive(first, time.monotonic() + patience + _GRACE))
        except TimeoutError:
            raise TimeoutError(self._late([0], patience)) from None
        except Ended:
            self._wait_for_reason()
            raise Ended(f"Process 0 on {self.nodes[0]} has ended.") from None
        if "error" in answer:
            raise TimeoutError(answer["error"]) if answer["is_late"] else Ended(answer["error"])
        found: list[bytes] = answer["all"]
        return found

    def break_off(self, reason: str) -> None:
        """Ends a gathering that waits, in another thread, with this reason."""
        self._broken = self._broken or reason
        self._has_reason.set()
        for connection in self._objects.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def outlive(self, seconds: float) -> None:
        """Lets process 0 end last: there this returns when all others have ended, or so late.

        To be called when nothing is said any more.
        """
        if self.rank > 0:
            self._objects[0].detach()  # the system closes it after all that this process does
            return
        deadline = time.monotonic() + seconds
        for connection in self._objects.values():
            with contextlib.suppress(OSError):
                receive(connection, deadline)

    def close(self) -> None:
        """Closes all connections; no thread may use them any more."""
        for connection in (*self._objects.values(), *self.signs.values()):
            connection.close()


# How they meet ------------------------------------------------------------------------------------


def meet(place: Place, patience: float, server: socket.socket | None = None) -> Star:
    """Waits until all processes are there.

    Args:
        place: This process' place.
        patience: How many seconds one is waited for in a step; here it is ten times that.
        server: What process 0 listens with, by default at the place's address.

    Raises:
        ValueError: in all processes, where they don't say the same about how many they are.
        TimeoutError: where one does not come.
        OSError: in process 0, where it can't listen at its address.
    """
    deadline = time.monotonic() + _START * patience
    if place.rank == 0:
        with contextlib.closing(server or listen(place)) as listening:
            return _Host(place, listening, deadline).run()
    return _join_first(place, deadline)


def listen(place: Place) -> socket.socket:
    """Returns a socket that listens at the first of the ports that is free."""
    # What others know this machine by need not be its own, or be its loopback for itself.
    host = place.host if place.host in ("localhost", "127.0.0.1", "::1") else ""
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    failure: OSError | None = None
    for port in place.ports:
        try:
            return socket.create_server((host, port), family=family, backlog=2 * place.size)
        except OSError as error:
            failure = failure or error
    raise OSError(
        f"Process 0 of {place.size} can't listen at {_where(place)}, where the others look for it: "
        f"{failure}. Give it an address of this machine and a port that is free."
    )


def _where(place: Place) -> str:
    ports = list(place.ports)
    return f"{place.host}:{ports[0]}" + (f" to {ports[-1]}" if len(ports) > 1 else "")


def _greeting(place: Place) -> bytes:
    """What process 0 says to each that connects; those of another start say something else."""
    return _MAGIC + place.attempt.encode()


def _hello(place: Place, purpose: str) -> dict[str, Any]:
    return {"rank": place.rank, "size": place.size, "node": platform.node(), "purpose": purpose}


_PURPOSES = ("objects", "signs")


class _Host:
    """Process 0 while the others come."""

    def __init__(self, place: Place, server: socket.socket, deadline: float):
        self._place = place
        self._server = server
        self._deadline = deadline
        self._connections: dict[str, dict[int, socket.socket]] = {p: {} for p in _PURPOSES}
        self._nodes = {0: platform.node()}

    def run(self) -> Star:
        try:
            while self._missing():
                self._accept(self._deadline)
        except BaseException as error:
            self._refuse(error)
            raise
        nodes = [self._nodes[rank] for rank in range(self._place.size)]
        self._answer({"nodes": nodes})
        return Star(self._place, self._connections["objects"], self._connections["signs"], nodes)

    def _missing(self) -> list[int]:
        connected = self._connections.values()
        return [
            rank
            for rank in range(1, self._place.size)
            if not all(rank in found for found in connected)
        ]

    def _accept(self, deadline: float) -> None:
        place = self._place
        self._server.settimeout(max(1e-3, deadline - time.monotonic()))
        try:
            connection, _ = self._server.accept()
        except TimeoutError:
            missing = ", ".join(map(str, self._missing()))
            raise TimeoutError(
                f"Of {place.size} processes {missing} did not come to process 0, which waits on "
                f"{platform.node()} at {_where(place)}. See whether they run, and reach it."
            ) from None
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            send(connection, _greeting(place), _HELLO_SECONDS)
            text = receive(connection, time.monotonic() + _HELLO_SECONDS)
            hello = json.loads(text)
            rank, size, node = int(hello["rank"]), int(hello["size"]), str(hello["node"])
            found = self._connections[hello["purpose"]]
        except (OSError, ValueError, KeyError, TypeError):  # somebody else
            connection.close()
            return
        is_twice = rank in found or rank == 0
        found[-len(found) - 1 if is_twice else rank] = connection
        if size != place.size:
            raise ValueError(
                f"Process 0 on {platform.node()} was told of {place.size} processes, process "
                f"{rank} on {node} of {size}. Start all with the same number."
            )
        if is_twice or not 0 < rank < size:
            raise ValueError(
                f"Two processes were told that they are process {rank} of {size}, on "
                f"{self._nodes.get(rank)} and on {node}. Give each its own number."
            )
        self._nodes[rank] = node

    def _answer(self, answer: dict[str, Any]) -> None:
        for found in self._connections.values():
            for connection in found.values():
                with contextlib.suppress(OSError):
                    send(connection, json.dumps(answer).encode())

    def _refuse(self, error: BaseException) -> None:
        """Tells all what is wrong, and those who come in the next seconds."""
        end = time.monotonic() + _LINGER_SECONDS
        while isinstance(error, ValueError) and self._missing() and time.monotonic() < end:
            with contextlib.suppress(ValueError, TimeoutError):
                self._accept(end)
        self._answer({"error": str(error), "is_value": isinstance(error, ValueError)})
        for found in self._connections.values():
            for connection in found.values():
                connection.close()


def _join_first(place: Place, deadline: float) -> Star:
    with contextlib.ExitStack() as opened:
        connections: dict[str, socket.socket] = {}
        for purpose in _PURPOSES:
            known = list(connections.values())
            connections[purpose] = opened.enter_context(_find_first(place, known, deadline))
            with contextlib.suppress(OSError):  # an end is noticed below
                send(connections[purpose], json.dumps(_hello(place, purpose)).encode())
        nodes = _wait_for_all(place, list(connections.values()), deadline + _GRACE)
        opened.pop_all()
    objects, signs = ({0: connections[purpose]} for purpose in _PURPOSES)
    return Star(place, objects, signs, nodes)


def _wait_for_all(
    place: Place, connections: Sequence[socket.socket], deadline: float
) -> Sequence[str]:
    """Returns the names of the machines of all processes."""
    answer: dict[str, Any] = {}
    for connection in connections:
        try:
            answer = json.loads(receive(connection, deadline))
        except (OSError, ValueError) as error:
            raise ConnectionError(
                f"Process 0 of {place.size} at {_where(place)} has ended, or said nothing more, "
                f"before all were there: {error}"
            ) from None
        if "error" in answer:
            kind = ValueError if answer["is_value"] else TimeoutError
            raise kind(f"Process {place.rank} of {place.size} can't join: {answer['error']}")
    nodes: Sequence[str] = answer["nodes"]
    return nodes


def _find_first(place: Place, known: Sequence[socket.socket], deadline: float) -> socket.socket:
    """Returns a new connection with process 0, beside those that are known."""
    failure = "nothing listens there"
    while True:
        for port in place.ports:
            try:
                connection = socket.create_connection((place.host, port), _GREETING_SECONDS)
            except OSError as error:
                failure = error.strerror or str(error)
                continue
            with contextlib.suppress(OSError):
                # A port that a system gives to who connects may be the one that is looked for.
                if connection.getsockname() == connection.getpeername():
                    raise Ended("this process speaks with itself")
                if receive(connection, time.monotonic() + _GREETING_SECONDS) == _greeting(place):
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    return connection
            failure = "something else listens there"
            connection.close()
        if known and select.select(known, [], [], 0.0)[0]:
            # Before all are there process 0 says only what is wrong, and listens no more then.
            _wait_for_all(place, known, deadline)
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"Process {place.rank} of {place.size} did not find process 0 at {_where(place)}: "
                f"{failure}. See whether it runs, and can be reached from {platform.node()}."
            )
        time.sleep(_PAUSE)

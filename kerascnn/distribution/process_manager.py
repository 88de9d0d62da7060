"""Processes that MPI did not start join one MPI all the same, by the process manager of MPICH.

MPI's library asks a process manager for its place among the others and for their addresses. That
manager is a program of MPICH, `mpiexec`, which the first process starts here with a shell that
waits in place of each process. The processes then register with it over its port
(PMI_PORT, PMI_ID), which MPICH has for managers that are no parents of their processes. What
trains goes between the processes, by MPI, as after `mpirun`.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from kerascnn.distribution.launch import World
from kerascnn.distribution.star import Star, meet, place_of
from kerascnn.distribution.watch import Watch

# What stands for a process: it says where the manager listens, and ends with the first process,
# whose end of the pipe is closed then, however it ends.
_STAND_IN = '[ "$PMI_ID" = 0 ] && echo "port=$PMI_PORT"; exec cat /dev/fd/{pipe}'
# Only for this machine, by whatever else the environment says of machines and their managers.
_MANAGER = ("-iface", "lo", "-rmk", "user", "-launcher", "fork", "-hosts", "localhost", "-pmi-port")
_END_SECONDS = 60.0  # in which the others have ended, which process 0 outlives
# Starting takes so many times as long as processes wait for one another in a step.
START = 10

_managers: list[subprocess.Popen[str]] = []  # what has been started, of which nothing is read


class Meeting:
    """Processes that have met, and notice when one of them ends.

    Args:
        connections: What connects them.
        patience: How many seconds a process waits for another one in a step.
    """

    def __init__(self, connections: Star, patience: float):
        self.connections = connections
        self._reason = ""
        self._is_reported = False
        # Whoever waits for a process that hangs says so first: here that is the last resort.
        self._watch = Watch(connections, START * patience, self._signs, self._give_up)

    def start(self) -> None:
        """Begins to notice."""
        self._watch.start()

    def _signs(self) -> dict[str, Any]:
        return {"started": 0, "waiting": 0.0, "is_reported": self._is_reported}

    def _give_up(self, reason: str) -> None:
        self._reason = reason

    def check(self) -> None:
        """Raises ConnectionError where the processes can't go on, with the reason."""
        if self._reason:
            self._is_reported = True
            raise ConnectionError(self._reason)

    def tell_failure(self, failure: str) -> None:
        """Tells the others that this process ends because of an error."""
        self._watch.tell_failure(failure)

    def leave(self) -> None:
        """Returns when all processes are done; one that ends otherwise ends this one."""
        self._watch.leave()


def join(mpi: Any, world: World, patience: float) -> Meeting:
    """Connects the processes by MPI.

    Args:
        mpi: The module `mpi4py.MPI`, where MPI has not begun.
        world: This process' place, with the address of the first one.
        patience: How many seconds a process waits for another one.

    Returns:
        What notices that one of them has ended.

    Raises:
        RuntimeError: where there is no address, where MPI has begun already, and where it is not
            MPICH or its mpiexec can't be started.
        ValueError: in all processes, where they were told different things.
        TimeoutError: where one does not come.
    """
    _check_mpich(mpi, world)
    connections = meet(place_of(world), patience)
    try:
        port = _start_manager(connections, patience)
    except BaseException:
        connections.close()
        raise
    own = {
        "PMI_PORT": f"{world.host if world.rank else '127.0.0.1'}:{port}",
        "PMI_ID": str(world.rank),
    }
    if len(set(connections.nodes)) > 1:
        # The manager takes all for processes of its own machine. Without this they would look for
        # one another in its memory.
        own["MPIR_CVAR_NOLOCAL"] = "1"
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    # Until all have come here nothing is noticed of one that has ended, and this does not return.
    faulthandler.dump_traceback_later(START * patience, exit=True, file=2)
    try:
        mpi.Init_thread()
    finally:
        faulthandler.cancel_dump_traceback_later()
        for name, value in before.items():  # processes that this one starts are none of MPI's
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    meeting = Meeting(connections, patience)
    meeting.start()
    atexit.register(_leave, mpi, meeting, threading.get_ident())
    return meeting


def _start_manager(connections: Star, patience: float) -> int:
    """Starts the process manager in the first process, and tells all at which port it listens."""
    said: dict[str, Any] = {}
    if connections.rank == 0:
        try:
            said["port"] = _run_manager(connections.size)
        except (OSError, RuntimeError) as error:
            said["error"] = str(error)
    everyones = connections.gather(json.dumps(said).encode(), START * patience)
    answer = json.loads(everyones[0])
    if "error" in answer:
        raise RuntimeError(
            f"The {connections.size} processes can't be connected, because of "
            f"{connections.name(0)}: {answer['error']}"
        )
    return int(answer["port"])


def _check_mpich(mpi: Any, world: World) -> None:
    if mpi.Is_initialized():
        raise RuntimeError(
            f"{world.launcher} says that there are {world.size} processes, but MPI has begun in "
            "this one and can't join others any more: call keras.distribution.initialize() before "
            "anything imports mpi4py.MPI."
        )
    vendor, _ = mpi.get_vendor()
    if vendor != "MPICH":
        raise RuntimeError(
            f"{world.launcher} has started {world.size} processes, which kerascnn connects by "
            f"MPICH; mpi4py has loaded {vendor}, which connects those of its own mpirun only. "
            "Install `mpich` in place of it, or start the processes with mpirun."
        )


def _run_manager(size: int) -> int:
    """Starts an mpiexec that ends with this process; returns the port at which it listens."""
    read_end, write_end = os.pipe()
    command = [
        _find_mpiexec(),
        *_MANAGER,
        *("-n", str(size), "sh", "-c", _STAND_IN.format(pipe=read_end)),
    ]
    outside = {name: v for name, v in os.environ.items() if not name.startswith("HYDRA_")}
    try:
        process = subprocess.Popen(
            command,
            env=outside,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=(read_end,),
        )
    finally:
        os.close(read_end)
    assert process.stdout is not None
    said = process.stdout.readline()
    _, equals, address = said.strip().partition("port=")
    port = address.rpartition(":")[2]
    if not equals or not port.isdecimal():
        os.close(write_end)
        raise RuntimeError(
            f"MPICH's process manager did not start. {' '.join(command)} said: "
            f"{said}{process.communicate()[0]}"
        )
    _managers.append(process)
    return int(port)


def _places_of_mpi4py() -> list[Path]:
    import mpi4py

    return [parent / "bin" for parent in Path(mpi4py.__file__).parent.parents]


def _find_mpiexec() -> str:
    """Returns the mpiexec that was installed with the library, in the environment of mpi4py."""
    for folder in (Path(sys.executable).parent, *_places_of_mpi4py()):
        for name in ("mpiexec.hydra", "mpiexec"):
            if (folder / name).exists():
                return str(folder / name)
    found = shutil.which("mpiexec.hydra") or shutil.which("mpiexec")
    if found is None:
        raise RuntimeError(
            "To connect processes that it did not start MPICH needs its mpiexec, which is neither "
            f"beside {sys.executable} nor on the PATH. Install it: pip install mpich"
        )
    return found


def _leave(mpi: Any, meeting: Meeting, thread: int) -> None:
    """Leaves MPI together with the others."""
    meeting.leave()
    if threading.get_ident() != thread:
        return  # only the thread that has begun with MPI may end it
    mpi.Finalize()
    # The manager ends with the first process, and MPI's library asks it something at exit still.
    meeting.connections.outlive(_END_SECONDS)

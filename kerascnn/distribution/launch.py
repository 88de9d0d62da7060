"""Which processes train together: what launchers say in environment variables, and callers by hand.

kerascnn starts no processes. `mpirun` (MPICH, Open MPI), `srun` (Slurm) and `torchrun` number those
that they start; Keras' `KERAS_DISTRIBUTION_*` and the arguments of `initialize` do it by hand, or
for Ray. Processes that MPI did not start also need an address at which to meet.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


class Launcher(NamedTuple):
    """Where a launcher says which of how many processes this one is."""

    name: str
    rank: str
    size: str
    local_rank: str | None
    others: tuple[str, ...] = ()  # further variables that it always sets
    is_mpi: bool = False  # whether MPI connects its processes


# Those of MPI first: they run in allocations of Slurm too.
LAUNCHERS = (
    Launcher(
        "mpirun (Open MPI)",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        is_mpi=True,
    ),
    Launcher("mpirun (MPICH)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", is_mpi=True),
    # SLURM_PROCID is set in a batch script too, which is one process; the size of a step is not.
    Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", is_mpi=True),
    Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", ("MASTER_ADDR", "MASTER_PORT")),
)
# torchrun's agent may listen at MASTER_PORT itself; processes then meet at one of these after it.
_AGENT_LISTENS = "TORCHELASTIC_USE_AGENT_STORE"
_FURTHER_PORTS = 8
# Set by their launchers in steps and scripts of one process too.
_ALONE = frozenset({"SLURM_PROCID", "SLURM_LOCALID", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"})

_ADDRESSES = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
_NUM_PROCESSES = "KERAS_DISTRIBUTION_NUM_PROCESSES"
_PROCESS_ID = "KERAS_DISTRIBUTION_PROCESS_ID"


class World(NamedTuple):
    """This process' place among those that train together."""

    launcher: str | None  # who says so; None where nobody does
    rank: int
    size: int
    is_mpi: bool  # whether MPI connects the processes already
    host: str | None = None  # that of process 0, where the others can meet it
    ports: tuple[int, ...] = ()  # at one of which it listens
    attempt: str = ""  # what other starts of the same processes don't have


ALONE = World(None, 0, 1, False)


def find_world(
    job_addresses: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> World:
    """This process' place among those that train together.

    Args:
        job_addresses: The addresses of all processes, or that of the first, with commas.
        num_processes: How many processes there are.
        process_id: The number of this one, from 0.
        environ: The environment, by default that of this process.

    Raises:
        ValueError: where a launcher's variables are there in part or are no numbers, where a number
            is out of range, and where two say different things.
    """
    environ = os.environ if environ is None else environ
    found = [world for launcher in LAUNCHERS if (world := _said_by(launcher, environ))]
    by_hand = _said_by_hand(job_addresses, num_processes, process_id, environ)
    if by_hand is not None:
        found.append(by_hand)
    if not found:
        return ALONE
    first = found[0]
    for other in found[1:]:
        if (other.rank, other.size) != (first.rank, first.size):
            raise ValueError(
                f"{first.launcher} says that this is process {first.rank} of {first.size}, but "
                f"{other.launcher} says that it is process {other.rank} of {other.size}. Start the "
                "processes with one launcher, and unset the variables of the other."
            )
    return first


def _said_by(launcher: Launcher, environ: Mapping[str, str]) -> World | None:
    needed = (launcher.rank, launcher.size, *launcher.others)
    given = [name for name in needed if name in environ]
    if not set(given) - _ALONE:
        return None
    missing = [name for name in needed if name not in environ]
    if missing:
        raise ValueError(
            f"{', '.join(given)} {'is' if len(given) == 1 else 'are'} set as by {launcher.name}, "
            f"but not {', '.join(missing)}. Start the process with {launcher.name}, or unset what "
            "is left of it."
        )
    rank, size = _number(launcher.rank, environ), _number(launcher.size, environ)
    _check_range(rank, size, launcher.rank, launcher.size)
    if launcher.local_rank is not None and launcher.local_rank in environ:
        _number(launcher.local_rank, environ)
    if launcher.is_mpi:
        return World(launcher.name, rank, size, True)
    return World(
        launcher.name,
        rank,
        size,
        False,
        environ["MASTER_ADDR"],
        _ports_of_torchrun(environ),
        "/".join(environ.get(f"TORCHELASTIC_{name}", "") for name in ("RUN_ID", "RESTART_COUNT")),
    )


def _ports_of_torchrun(environ: Mapping[str, str]) -> tuple[int, ...]:
    port = _number("MASTER_PORT", environ)
    if not 0 < port < 1 << 16:
        raise ValueError(f"MASTER_PORT must be from 1 to 65535. Received: {port}")
    if environ.get(_AGENT_LISTENS) != "True":
        return (port,)
    return tuple(p for p in range(port + 1, port + 1 + _FURTHER_PORTS) if p < 1 << 16)


def _said_by_hand(
    job_addresses: str | None,
    num_processes: int | None,
    process_id: int | None,
    environ: Mapping[str, str],
) -> World | None:
    if job_addresses is None:
        job_addresses = environ.get(_ADDRESSES)
    if num_processes is None and _NUM_PROCESSES in environ:
        num_processes = _number(_NUM_PROCESSES, environ)
    if process_id is None and _PROCESS_ID in environ:
        process_id = _number(_PROCESS_ID, environ)
    parts = {
        f"num_processes ({_NUM_PROCESSES})": num_processes,
        f"process_id ({_PROCESS_ID})": process_id,
    }
    missing = [name for name, value in parts.items() if value is None]
    if len(missing) == len(parts) and job_addresses is None:
        return None
    if missing:
        raise ValueError(
            "initialize() was told about processes by hand, but not all of it: "
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing."
        )
    assert num_processes is not None and process_id is not None
    _check_range(process_id, num_processes, "process_id", "num_processes")
    addresses = [part for part in (job_addresses or "").split(",") if part.strip()]
    if len(addresses) not in (0, 1, num_processes):
        raise ValueError(
            f"`job_addresses` has {len(addresses)} addresses for num_processes={num_processes}: "
            "give one for each process, or that of the first. Received: "
            f"job_addresses={job_addresses!r}"
        )
    host, ports = _split_address(addresses[0]) if addresses else (None, ())
    return World("initialize()", process_id, num_processes, False, host, ports)


def _split_address(address: str) -> tuple[str, tuple[int, ...]]:
    """Returns host and port of `host:port`; without a port none."""
    host, colon, port = address.strip().rpartition(":")
    if not colon:
        return port, ()
    is_bare_v6 = ":" in host and not host.startswith("[")
    if not host or is_bare_v6 or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(
            f"An address in `job_addresses` ({_ADDRESSES}) must be host:port, with a port from 1 "
            f"to 65535 (and [host]:port for IPv6). Received: {address!r}"
        )
    return host.strip("[]"), (int(port),)


def _number(name: str, environ: Mapping[str, str]) -> int:
    try:
        return int(environ[name])
    except ValueError:
        raise ValueError(
            f"The environment variable {name} must be a whole number. Received: {environ[name]!r}"
        ) from None


def _check_range(rank: int, size: int, rank_name: str, size_name: str) -> None:
    if size < 1 or not 0 <= rank < size:
        raise ValueError(
            f"{size_name} must be 1 or more, and {rank_name} from 0 to {size_name} - 1. Received: "
            f"{rank_name}={rank}, {size_name}={size}"
        )

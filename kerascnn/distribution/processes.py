"""The processes that train together: joining them, and ending all when one of them fails."""

from __future__ import annotations

import os
import random as python_random
import sys
from types import TracebackType
from typing import Any

import numpy as np

from kerascnn import _core
from kerascnn.device import current as current_device
from kerascnn.distribution.launch import World, find_world

_TIMEOUT = "KERASCNN_DISTRIBUTION_TIMEOUT"
_SECONDS = 30.0

_world: World | None = None  # None until `initialize`
_engine: Any = None  # an MpiEngine or NcclEngine where there are several processes


def initialize(
    job_addresses: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Joins the processes that a launcher has started; call it before anything else.

    Without arguments and without a launcher there is one process, and nothing changes. `mpirun`,
    `srun` and `torchrun` tell their processes how many there are; the arguments and
    `KERAS_DISTRIBUTION_*` may repeat it, and must then be right, or say it alone. Where the
    processes compute on GPUs, each gets the GPU of its number on its machine. Where random seeds
    differ between the processes, as without `keras.utils.set_random_seed` before, all get the same
    one. An error that ends one process ends all of them from then on.

    Args:
        job_addresses: addresses of the processes, or of the first one, separated by commas:
            `host:port`, where processes meet that neither `mpirun` nor `srun` has started.
        num_processes: how many processes there are.
        process_id: the number of this one, from 0.

    Raises:
        ValueError: where a launcher's variables are there in part, are no numbers, or contradict
            one another or the arguments; in all processes, where they were told different things.
        ImportError: for several processes on CPUs without mpi4py or an MPI library.
        RuntimeError: without an address for processes that MPI has not started, for those on CPUs
            with another MPI than MPICH, where MPI knows another number of them than the launcher,
            and, in all of them, where one has no GPU for itself or no NCCL.
        TimeoutError: where a process does not come to the others.

    >>> keras.distribution.initialize()  # a world of one
    >>> keras.distribution.list_devices("cpu")
    ['cpu:0']
    """
    global _world, _engine
    world = find_world(job_addresses, num_processes, process_id)
    if _world is not None:
        if world != _world:
            raise RuntimeError(
                f"initialize() was called before, for process {_world.rank} of {_world.size}. A "
                f"process joins others once. Received now: process {world.rank} of {world.size}"
            )
        return
    if world.size > 1:
        _engine = _make_engine(world)
        _core.set_collectives(
            _engine.name, world.rank, world.size, _engine.exchange, _engine.gather
        )
        _share_seed(_engine)
        _end_all_with_this_one(_engine)
    _world = world


def _make_engine(world: World) -> Any:
    if current_device() != "cpu":
        from kerascnn.distribution.nccl import NcclEngine

        return NcclEngine(world, patience())
    from kerascnn.distribution.mpi import MpiEngine

    return MpiEngine(world, patience())


def patience() -> float:
    """Returns for how many seconds a process waits for another one."""
    text = os.environ.get(_TIMEOUT, str(_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise ValueError(
            f"{_TIMEOUT} must be a number of seconds above 0, by default {_SECONDS:g}. Received: "
            f"{text!r}"
        )
    return seconds


def _share_seed(engine: Any) -> None:
    """Makes random generators the same where they differ, by a seed of the first process."""
    from kerascnn import seed_generators, utils

    kind, keys, place, *_ = np.random.get_state()  # noqa: NPY002
    mine = (
        python_random.getstate(),
        (kind, np.asarray(keys).tobytes(), place),
        seed_generators.global_seed(),
    )
    proposal = int(np.random.SeedSequence().generate_state(1)[0])
    found = engine.gather_objects((mine, proposal))
    if any(state != found[0][0] for state, _ in found):
        utils.set_random_seed(found[0][1])


def _end_all_with_this_one(engine: Any) -> None:
    """Makes an error that ends this process end all, with one message that names it."""
    before = sys.excepthook

    def end_all(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        before(kind, error, traceback)
        print(
            f"kerascnn: process {engine.rank} of {engine.size} on {engine.host} failed with "
            f"{kind.__name__}: {error}\nIt ends the others.",
            file=sys.stderr,
            flush=True,
        )
        sys.stdout.flush()
        engine.abort(f"{kind.__name__}: {error}")

    sys.excepthook = end_all


def engine() -> Any:
    """Returns what connects this process with others, or None where there is one."""
    return _engine


def device_kind() -> str:
    """Returns what all processes compute on, "cpu" or "gpu", where there are several."""
    return getattr(_engine, "devices", "cpu")


def world() -> World | None:
    """Returns this process' place among all; None before `initialize`."""
    return _world


def num_processes() -> int:
    """How many processes train together.

    Returns:
        The number; 1 before `initialize`.

    >>> keras.distribution.num_processes()
    1
    """
    return 1 if _world is None else _world.size


def process_id() -> int:
    """The number of this process among those that train together, from 0.

    For what one process is to do alone, such as printing a result or saving the trained model.

    Returns:
        The number; 0 before `initialize`.

    >>> if keras.distribution.process_id() == 0:
    ...     print("only once")
    only once
    """
    return 0 if _world is None else _world.rank

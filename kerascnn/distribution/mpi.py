"""MPI, by mpi4py, as the engine that moves bytes between processes.

Messages go from process to process, so that one which waits for too long knows for whom. What is
computed of the bytes, and in which order, is not MPI's: see core/backend/cpu/all_reduce.cpp.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import platform
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerascnn.distribution.launch import World
from kerascnn.distribution.process_manager import Meeting, join

# A process that waits looks for messages all the time at first, then leaves the core to others.
_SPIN_SECONDS = 2e-4
_SLEEP_SECONDS = 5e-5
# How long MPI may take to end all processes before this one ends by itself.
_ABORT_SECONDS = 10.0


class MpiEngine:
    """The processes that one `mpirun` or `srun` has started, or that have met at an address.

    Args:
        world: What the launcher says.
        patience: How many seconds a process waits for another one in one call.

    Raises:
        ImportError: without mpi4py.
        RuntimeError: where MPI does not know the processes that the launcher has started, or can't
            connect them.
        ValueError: where they were told different things.
        TimeoutError: where one does not come.
    """

    def __init__(self, world: World, patience: float):
        self._mpi, self._meeting = _begin(world, patience)
        self._comm: Any = self._mpi.COMM_WORLD.Dup()
        self.rank, self.size = world.rank, world.size
        self.patience = patience
        vendor, version = self._mpi.get_vendor()
        self.name = f"{vendor} {'.'.join(map(str, version))}"
        self.host = platform.node()
        self._broken: str | None = None

    # Bytes ------------------------------------------------------------------------------------

    def exchange(self, send: int, receive: int, block_bytes: int) -> None:
        """Block i at address `send` goes to process i, block i at `receive` comes from it."""
        blocks = [self._memory(send + i * block_bytes, block_bytes) for i in range(self.size)]
        self._meet(blocks, receive, block_bytes, self.patience)

    def gather(self, send: int, receive: int, block_bytes: int) -> None:
        """What is at address `send` goes to all, block i at `receive` comes from process i."""
        self._gather(send, receive, block_bytes, self.patience)

    def _gather(self, send: int, receive: int, block_bytes: int, patience: float) -> None:
        block = self._memory(send, block_bytes)
        self._meet([block] * self.size, receive, block_bytes, patience)

    def _memory(self, address: int, num_bytes: int) -> Any:
        return self._mpi.buffer.fromaddress(address, num_bytes)

    def _meet(self, blocks: Sequence[Any], receive: int, block_bytes: int, patience: float) -> None:
        if self._broken is not None:
            raise RuntimeError(
                f"The processes can't be reached any more, since before this: {self._broken}"
            )
        places = [self._memory(receive + i * block_bytes, block_bytes) for i in range(self.size)]
        places[self.rank][:] = blocks[self.rank]
        others = [(self.rank + i) % self.size for i in range(1, self.size)]
        kind = self._mpi.BYTE
        arriving = {i: self._comm.Irecv([places[i], kind], source=i) for i in others}
        leaving = [self._comm.Isend([blocks[i], kind], dest=i) for i in others]
        try:
            self._wait(list(arriving.values()), leaving, patience)
        except TimeoutError:
            late = [i for i, request in arriving.items() if not request.Test()]
            self._broken = (
                f"Process {self.rank} of {self.size} has waited for {patience:g} seconds for "
                f"{'process' if len(late) == 1 else 'processes'} "
                f"{', '.join(map(str, late)) or 'that took no message'}, which hangs, has ended or "
                "does something else. If it only takes long, set "
                "KERASCNN_DISTRIBUTION_TIMEOUT to more seconds."
            )
            raise TimeoutError(self._broken) from None
        except BaseException as error:
            self._broken = f"{type(error).__name__}: {error}"
            raise

    def _wait(self, arriving: list[Any], leaving: list[Any], patience: float) -> None:
        requests = [*arriving, *leaving]
        begun = time.monotonic()
        while not self._mpi.Request.Testall(requests):
            waited = time.monotonic() - begun
            if waited > patience:
                raise TimeoutError
            if self._meeting is not None:
                self._meeting.check()
            time.sleep(0 if waited < _SPIN_SECONDS else _SLEEP_SECONDS)

    # Python's objects -----------------------------------------------------------------------------

    def gather_objects(self, value: Any, times: int = 1) -> list[Any]:
        """The values of all processes, in their order.

        Args:
            value: What this process gives, anything that can be pickled.
            times: How many times as long as usual a process is waited for.
        """
        patience = self.patience * times
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = self._gather_array(np.array([len(data)], np.int64), patience)[:, 0]
        padded = np.zeros(int(sizes.max()), np.uint8)
        padded[: len(data)] = data
        rows = self._gather_array(padded, patience)
        return [pickle.loads(row[:n].tobytes()) for row, n in zip(rows, sizes, strict=True)]

    def gather_array(self, array: np.ndarray) -> np.ndarray:
        """The arrays of all processes, of one shape and dtype: (processes, ...)."""
        return self._gather_array(array, self.patience)

    def _gather_array(self, array: np.ndarray, patience: float) -> np.ndarray:
        array = np.ascontiguousarray(array)
        result = np.empty((self.size, *array.shape), array.dtype)
        self._gather(array.ctypes.data, result.ctypes.data, array.nbytes, patience)
        return result

    def abort(self, failure: str) -> None:
        """Ends all processes at once, because of what is wrong in this one."""
        if self._meeting is not None:
            # MPI would tell the others, and wait for those that can't be reached any more.
            self._meeting.tell_failure(failure)
            os._exit(1)
        faulthandler.dump_traceback_later(_ABORT_SECONDS, exit=True, file=2)
        self._comm.Abort(1)


def _load(world: World) -> Any:
    try:
        import mpi4py

        mpi4py.rc.initialize = world.is_mpi  # others begin when they have met
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError(
            f"{world.launcher} has started {world.size} processes, and kerascnn connects them by "
            f"MPI, which can't be loaded here: {error}. Install it in this environment: pip "
            "install 'kerascnn[mpi]' (mpi4py and MPICH with its mpirun)."
        ) from error
    except RuntimeError as error:  # mpi4py finds no libmpi
        raise ImportError(
            f"{world.launcher} has started {world.size} processes, and mpi4py finds no MPI "
            f"library to connect them: {error}. Install one, such as `pip install mpich`."
        ) from error
    return MPI


def _begin(world: World, patience: float) -> tuple[Any, Meeting | None]:
    """Loads MPI, and returns it and how the processes have met, if no mpirun has started them."""
    mpi = _load(world)
    meeting = None if world.is_mpi else join(mpi, world, patience)
    found = mpi.COMM_WORLD.Get_size(), mpi.COMM_WORLD.Get_rank()
    if found != (world.size, world.rank):
        library = mpi.Get_library_version().split("\n")[0].strip(" \0")
        raise RuntimeError(
            f"{world.launcher} says that this is process {world.rank} of {world.size}, but MPI "
            f"({library}) says that it is process {found[1]} of {found[0]}: the launcher is of "
            "another MPI than the library. Start the processes with the mpirun of this "
            "environment; with Slurm, name its interface (srun --mpi=pmi2, or --mpi=pmix)."
        )
    return mpi, meeting

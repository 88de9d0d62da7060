"""NCCL as what sums between the GPUs of several processes, one GPU each.

The sums are ops of the compiled step (core/backend/cuda/movement/all_reduce.cu). Here is what they
need around them: which GPU is whose, a communicator that all have joined, Python's objects, which
go through process 0 (star.py), and somebody who notices that a process is missing (watch.py).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import pickle
import platform
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kerascnn import _core
from kerascnn.device import current as current_device
from kerascnn.device import set_default as set_default_device
from kerascnn.distribution import star
from kerascnn.distribution.launch import LAUNCHERS, World
from kerascnn.distribution.watch import Watch

_LIBRARY = "libnccl.so.2"
# Connections are made when processes join, and captured steps register no memory: both are things
# that all processes have to do at the same time, which captures are not. All sums of a process run
# in one order, in graphs or not, and never at once: NCCL need not keep those of two graphs apart,
# for which it puts events around each of them.
SETTINGS = {
    "NCCL_RUNTIME_CONNECT": "0",
    "NCCL_GRAPH_REGISTER": "0",
    "NCCL_GRAPH_MIXING_SUPPORT": "0",
}
# Joining takes so many times as long as processes wait for one another in a step.
START = 10


def find_library() -> str:
    """Returns the file of NCCL's wheel, or the name by which the system finds the library."""
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        spec = None
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    files = [Path(folder) / "lib" / _LIBRARY for folder in folders]
    return next((str(file) for file in files if file.exists()), _LIBRARY)


def local_rank(world: World, environ: Mapping[str, str]) -> int | None:
    """Returns the number of this process among those of its machine, where the launcher says it."""
    for launcher in LAUNCHERS:
        name = launcher.local_rank
        if launcher.name == world.launcher and name is not None and name in environ:
            return int(environ[name])
    return None


def own_gpu(rank_here: int, usable: int, environ: Mapping[str, str]) -> int:
    """The GPU of a process that is number `rank_here` of its machine.

    Raises:
        ValueError: where there are fewer GPUs than processes.
    """
    asked = re.fullmatch(r"(?:gpu|cuda):(\d+)", environ.get("KERASCNN_DEVICE", "").lower())
    if asked is not None:
        return int(asked[1])
    # Some launchers show each process its own GPU alone.
    if usable == 1:
        return 0
    if rank_here >= usable:
        raise ValueError(
            f"It is number {rank_here} of its machine, counted from 0, which has {usable} GPUs: "
            "start at most one process for each GPU, or train on CPUs (KERASCNN_DEVICE=cpu)."
        )
    return rank_here


class NcclEngine:
    """The processes that a launcher has started, each with a GPU.

    Args:
        world: What the launcher says.
        patience: How many seconds a process waits for another one.

    Raises:
        ValueError: in all processes, where two have the same GPU, and where they say different
            things of how many they are.
        RuntimeError: in all processes, where one has no GPU or no NCCL, or NCCL can't connect them.
        TimeoutError: where one does not come.
    """

    devices = "gpu"

    def __init__(self, world: World, patience: float):
        self.rank, self.size = world.rank, world.size
        self.patience = patience
        self.host = platform.node()
        self._mpi: Any = None
        if world.is_mpi:
            self._star = self._meet_by_mpi(world)
        else:
            self._star = star.meet(star.place_of(world), patience)
        try:
            self._index, version, uuid = self._agree(world)
            self.name = f"NCCL {version}"
            self.device = f"cuda:{self._index}"
            self._check_gpus(version, uuid)
            self._join()
        except BaseException:
            self._star.close()
            raise
        self._watch = Watch(self._star, patience, _core.gpu_meetings, _core.give_up_gpus)
        self._watch.start()
        atexit.register(self._leave)

    # Joining --------------------------------------------------------------------------------------

    def _meet_by_mpi(self, world: World) -> star.Star:
        from kerascnn.distribution.mpi import MpiEngine

        self._mpi = MpiEngine(world, self.patience)
        server = socket.create_server(("", 0)) if world.rank == 0 else None
        port = 0 if server is None else server.getsockname()[1]
        everyones = self._mpi.gather_objects(("gpu", self.host, port))
        for rank, said in enumerate(everyones):
            if said[0] != "gpu":
                raise RuntimeError(
                    f"Process {world.rank} of {world.size} computes on {current_device()}, but "
                    f"process {rank} on its CPU: all train on GPUs, or all on CPUs. "
                    "KERASCNN_DEVICE=cpu, or gpu, says which."
                )
        host = everyones[0][1]
        is_one_machine = all(said[1] == host for said in everyones)
        address = "127.0.0.1" if is_one_machine else host
        place = star.Place(world.rank, world.size, address, [everyones[0][2]])
        return star.meet(place, self.patience, server)

    def _agree(self, world: World) -> tuple[int, str, str]:
        """Returns this process' GPU, NCCL's version, and the GPU's name, if all have one."""
        ranks_here = [r for r, node in enumerate(self._star.nodes) if node == self.host]
        number = local_rank(world, os.environ)
        error, found = "", (0, "", "")
        try:
            usable = [name for name, ok, _ in _core.list_devices() if ok and name != "cpu"]
            here = ranks_here.index(self.rank) if number is None else number
            index = own_gpu(here, len(usable), os.environ)
            set_default_device(f"cuda:{index}")
            for name, value in SETTINGS.items():
                os.environ.setdefault(name, value)
            found = (index, _core.open_nccl(find_library()), _core.gpu_uuid(index))
        except (ValueError, RuntimeError) as raised:
            error = f"{raised}"
        self._raise_any(error)
        return found

    def _raise_any(self, error: str) -> None:
        """Raises in all processes what is wrong in one."""
        for rank, other in enumerate(self.gather_objects(error, START)):
            if other:
                raise RuntimeError(
                    f"The GPUs of {self.size} processes can't be connected, because of "
                    f"{self._star.name(rank)}: {other}"
                )

    def _check_gpus(self, version: str, uuid: str) -> None:
        everyones = self.gather_objects((version, uuid, self.device))
        owners: dict[str, int] = {}
        for rank, (other_version, other_uuid, name) in enumerate(everyones):
            first = owners.setdefault(other_uuid, rank)
            if first != rank:
                raise ValueError(
                    f"A GPU can't be listed twice: {self._star.name(first)} has it as "
                    f"{everyones[first][2]}, {self._star.name(rank)} as {name}. Start at most one "
                    "process for each GPU (with Ray, a worker for each whole one); LOCAL_RANK or "
                    "KERASCNN_DEVICE=cuda:1 say which it has."
                )
            if other_version != everyones[0][0]:
                raise RuntimeError(
                    f"The processes have different versions of NCCL: {self._star.name(0)} has "
                    f"{everyones[0][0]}, {self._star.name(rank)} has {other_version}. Install the "
                    "same nvidia-nccl-cu13 for all."
                )

    def _join(self) -> None:
        nccl_id = _core.make_nccl_id() if self.rank == 0 else b""
        nccl_id = self.gather_objects(nccl_id, START)[0]
        error = ""
        try:
            _core.join_nccl(self._index, nccl_id, self.rank, self.size, self.patience * START)
        except RuntimeError as raised:
            error = str(raised)
        self._raise_any(error)

    # What goes between the hosts ------------------------------------------------------------------

    def exchange(self, send: int, receive: int, block_bytes: int) -> None:
        """Block i at address `send` goes to process i, block i at `receive` comes from it."""
        whole = self._star.gather(ctypes.string_at(send, block_bytes * self.size), self.patience)
        begin = self.rank * block_bytes
        blocks = b"".join(data[begin : begin + block_bytes] for data in whole)
        ctypes.memmove(receive, blocks, len(blocks))

    def gather(self, send: int, receive: int, block_bytes: int) -> None:
        """What is at address `send` goes to all, block i at `receive` comes from process i."""
        blocks = b"".join(self._star.gather(ctypes.string_at(send, block_bytes), self.patience))
        ctypes.memmove(receive, blocks, len(blocks))

    def gather_objects(self, value: Any, times: int = 1) -> list[Any]:
        """The values of all processes, in their order.

        Args:
            value: What this process gives, anything that can be pickled.
            times: How many times as long as usual a process is waited for.
        """
        found = self._star.gather(pickle.dumps(value), self.patience * times)
        return [pickle.loads(data) for data in found]

    def gather_array(self, array: np.ndarray) -> np.ndarray:
        """The arrays of all processes, of one shape and dtype: (processes, ...)."""
        array = np.ascontiguousarray(array)
        data = b"".join(self._star.gather(array.tobytes(), self.patience))
        return np.frombuffer(data, array.dtype).reshape(self.size, *array.shape).copy()

    # Ending ---------------------------------------------------------------------------------------

    def _leave(self) -> None:
        with contextlib.suppress(RuntimeError):  # who waited before was told of it
            _core.synchronize(self.device)
        self._watch.leave()

    def abort(self, failure: str) -> None:
        """Ends all processes at once, because of what is wrong in this one."""
        self._watch.tell_failure(failure)
        if self._mpi is not None:
            self._mpi.abort(failure)
        os._exit(1)

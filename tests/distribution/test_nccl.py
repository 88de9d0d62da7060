"""What surrounds NCCL: which GPU is whose, who joins whom. Threads play processes with GPUs."""

from __future__ import annotations

import ctypes
import sys
import threading
import types

import numpy as np
import pytest

from kerascnn.distribution import data_parallel, nccl, processes
from kerascnn.distribution.launch import World

from .conftest import free_port
from .test_star import LONG, in_threads


def world(rank, size=2, launcher="torchrun", port=29500):
    return World(launcher, rank, size, False, "127.0.0.1", (port,))


class TestPlaces:
    @pytest.mark.parametrize(
        ("rank_here", "usable", "variables", "expected"),
        [
            (0, 2, {}, 0),
            (1, 2, {}, 1),
            (3, 1, {}, 0),  # each process is shown a GPU of its own
            (1, 2, {"KERASCNN_DEVICE": "cuda:0"}, 0),
            (1, 2, {"KERASCNN_DEVICE": "GPU:0"}, 0),
            (1, 2, {"KERASCNN_DEVICE": "gpu"}, 1),
        ],
    )
    def test_own_gpu(self, rank_here, usable, variables, expected):
        assert nccl.own_gpu(rank_here, usable, variables) == expected

    def test_more_processes_than_gpus(self):
        with pytest.raises(ValueError, match="number 2 of its machine, .* which has 2 GPUs"):
            nccl.own_gpu(2, 2, {})

    def test_local_ranks(self):
        assert nccl.local_rank(world(5), {"LOCAL_RANK": "1"}) == 1
        assert nccl.local_rank(world(5), {}) is None
        assert nccl.local_rank(world(5, launcher="srun"), {"SLURM_LOCALID": "2"}) == 2

    def test_the_wheel_goes_before_what_the_system_has(self, tmp_path, monkeypatch):
        assert nccl.find_library().endswith("libnccl.so.2")
        monkeypatch.setitem(sys.modules, "nvidia", types.ModuleType("nvidia"))
        sys.modules["nvidia"].__path__ = [str(tmp_path)]
        file = tmp_path / "nccl" / "lib" / "libnccl.so.2"
        file.parent.mkdir(parents=True)
        assert nccl.find_library() == "libnccl.so.2"
        file.touch()
        assert nccl.find_library() == str(file)


class Core:
    """Plays the core of one process with two GPUs; the ids of joins are `joined`."""

    def __init__(self):
        self.version, self.uuids, self.usable = "2.30.7", ("a", "b"), 2
        self.missing, self.failure = "", ""
        self.joined = []

    def list_devices(self):
        gpus = [(f"cuda:{i}", True, "a GPU") for i in range(self.usable)]
        return [("cpu", True, "a CPU"), *gpus]

    def open_nccl(self, library):
        if self.missing:
            raise RuntimeError(self.missing)
        return self.version

    def gpu_uuid(self, index):
        return self.uuids[index]

    def make_nccl_id(self):
        return b"the id"

    def join_nccl(self, index, nccl_id, rank, size, patience):
        if self.failure:
            raise RuntimeError(self.failure)
        self.joined.append((index, nccl_id, rank, size))

    def gpu_meetings(self):
        return {"started": 0, "ended": 0, "waiting": 0.0, "is_reported": True}

    def give_up_gpus(self, reason):
        pass


@pytest.fixture
def engines(monkeypatch):
    """Returns a function that makes the engines of two processes, or their errors."""
    port = free_port()
    for name in ("LOCAL_RANK", "KERASCNN_DEVICE", "TORCHELASTIC_USE_AGENT_STORE"):
        monkeypatch.delenv(name, raising=False)
    for name in nccl.SETTINGS:
        monkeypatch.setenv(name, "0")
    monkeypatch.setattr(nccl, "set_default_device", lambda name: None)
    monkeypatch.setattr(nccl.atexit, "register", lambda function: None)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(nccl, "_core", CoreOfThread())
    cores = [Core(), Core()]
    made = []

    def join(rank, size):
        CoreOfThread.known.core = cores[rank]
        made.append(nccl.NcclEngine(world(rank, size, port=port), LONG))
        return made[-1]

    def make(sizes=(2, 2)):
        return in_threads([lambda r=r, size=size: join(r, size) for r, size in enumerate(sizes)])

    make.cores = cores
    yield make
    for engine in made:
        engine._watch.stop()
    for engine in made:
        engine._star.close()


class CoreOfThread:
    """The core of the process that the thread plays."""

    known = threading.local()

    def __getattr__(self, name):
        return getattr(self.known.core, name)


class TestJoining:
    def test_each_gets_its_gpu(self, engines):
        first, second = engines()
        assert [engine.device for engine in (first, second)] == ["cuda:0", "cuda:1"]
        assert [core.joined for core in engines.cores] == [
            [(0, b"the id", 0, 2)],
            [(1, b"the id", 1, 2)],
        ]
        assert (first.name, first.size, second.rank) == ("NCCL 2.30.7", 2, 1)

    def test_each_is_shown_its_gpu_alone(self, engines, monkeypatch):
        """As by Ray: both are the first in their own numbering, and not the same."""
        for core, uuid in zip(engines.cores, "ab", strict=True):
            core.usable, core.uuids = 1, (uuid,)
        both = engines()
        assert [engine.device for engine in both] == ["cuda:0", "cuda:0"]
        monkeypatch.setattr(processes, "_world", world(1))
        monkeypatch.setattr(processes, "_engine", both[1])
        monkeypatch.setattr(data_parallel, "current_device", lambda: "cuda:0")
        distribution = data_parallel.DataParallel()
        assert distribution.device_mesh.devices.tolist() == ["gpu:0", "gpu:1"]
        assert (distribution.num_processes, distribution.data_shard_id) == (2, 1)
        with pytest.raises(ValueError, match="a distribution has all of these and no other"):
            data_parallel.DataParallel(devices=["gpu:0"])

    def test_the_same_gpu_is_shown_to_both(self, engines):
        for core in engines.cores:
            core.usable, core.uuids = 1, ("a",)
        self.fail(engines, ValueError, "as cuda:0, process 1 on", "with Ray, a worker for each")

    def test_what_goes_between_hosts(self, engines):
        both = engines()
        values = [{"a": 1}, [np.arange(3)]]
        calls = [lambda i=i: both[i].gather_objects(values[i]) for i in range(2)]
        for found in in_threads(calls):
            assert found[0] == values[0]
            np.testing.assert_array_equal(found[1][0], values[1][0])
        arrays = [np.arange(6.0).reshape(2, 3) + 10 * i for i in range(2)]
        calls = [lambda i=i: both[i].gather_array(arrays[i]) for i in range(2)]
        for found in in_threads(calls):
            np.testing.assert_array_equal(found, np.stack(arrays))

    def test_memory(self, engines):
        both = engines()
        sent = [np.arange(4, dtype=np.int16) + 10 * i for i in range(2)]

        def call(i, what):
            received = np.zeros(4, np.int16)
            addresses = [
                array.ctypes.data_as(ctypes.c_void_p).value for array in (sent[i], received)
            ]
            getattr(both[i], what)(*addresses, 4)
            return received.tolist()

        exchanged = in_threads([lambda i=i: call(i, "exchange") for i in range(2)])
        assert exchanged == [[0, 1, 10, 11], [2, 3, 12, 13]]
        gathered = in_threads([lambda i=i: call(i, "gather") for i in range(2)])
        assert gathered == [[0, 1, 10, 11]] * 2

    def fail(self, engines, kind, *parts, sizes=(2, 2)):
        for error in engines(sizes):
            assert type(error) is kind, error
            for part in parts:
                assert part in str(error)

    def test_one_gpu_for_two(self, engines):
        engines.cores[1].uuids = ("a", "a")
        self.fail(engines, ValueError, "can't be listed twice: process 0 on", "as cuda:1")

    def test_fewer_gpus_than_processes(self, engines, monkeypatch):
        monkeypatch.setenv("LOCAL_RANK", "2")  # as for each of three, of which two are here
        self.fail(engines, RuntimeError, "because of process 0 on", "which has 2 GPUs: start at")

    def test_without_nccl_in_one(self, engines):
        engines.cores[1].missing = "libnccl.so.2 can't be opened"
        self.fail(engines, RuntimeError, "because of process 1 on", "libnccl.so.2 can't be opened")

    def test_different_versions(self, engines):
        engines.cores[0].version = "2.27.3"
        self.fail(engines, RuntimeError, "different versions of NCCL", "has 2.27.3", "has 2.30.7")

    def test_nccl_that_does_not_connect(self, engines):
        engines.cores[1].failure = "initialize: process 1 of 2: NCCL error 5"
        self.fail(engines, RuntimeError, "because of process 1 on", "NCCL error 5")

    def test_different_sizes(self, engines):
        self.fail(engines, ValueError, "was told of 3 processes", sizes=(3, 2))


def test_gpus_are_connected_by_nccl(monkeypatch):
    made = []
    monkeypatch.setattr(nccl, "NcclEngine", lambda *arguments: made.append(arguments))
    monkeypatch.setattr(processes, "current_device", lambda: "cuda:0")
    monkeypatch.setenv("KERASCNN_DISTRIBUTION_TIMEOUT", "7")
    processes._make_engine(world(1))
    assert made == [(world(1), 7.0)]

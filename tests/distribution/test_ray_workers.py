"""What a worker of Ray is told: its place, and what it computes on. Ray and its GPUs are played."""

from __future__ import annotations

import os
import socket

import pytest

from kerascnn.distribution import nccl, star
from kerascnn.distribution.launch import World, find_world

pytest.importorskip("ray", reason="ray is not installed (pip install 'kerascnn[ray]')")
from kerascnn.distribution import ray_train

UUIDS = "GPU-8a1f,GPU-77c0"


class TestDevices:
    @pytest.mark.parametrize(
        ("gpus", "size", "variables", "expected"),
        [
            # Each worker is shown its own GPU alone, which CUDA numbers from 0.
            (["0"], 2, {"CUDA_VISIBLE_DEVICES": "0"}, "gpu:0"),
            (["1"], 2, {"CUDA_VISIBLE_DEVICES": "1"}, "gpu:0"),
            (["GPU-77c0"], 2, {"CUDA_VISIBLE_DEVICES": "GPU-77c0"}, "gpu:0"),
            # Those of all workers of the machine, in the order of text.
            (["2"], 12, {"CUDA_VISIBLE_DEVICES": "0,1,10,11,2,3"}, "gpu:4"),
            (["GPU-77c0"], 2, {"CUDA_VISIBLE_DEVICES": UUIDS}, "gpu:1"),
            # All that there are.
            (["1"], 2, {}, "gpu:1"),
            (["1"], 1, {}, "gpu:1"),
            # A worker with several has the first; one alone trains on all.
            (["5", "4"], 3, {"CUDA_VISIBLE_DEVICES": "4,5"}, "gpu:0"),
            (["5", "4"], 3, {}, "gpu:4"),
            (["1", "0"], 1, {"CUDA_VISIBLE_DEVICES": "0,1"}, "gpu"),
            # Ray leaves the variable as it was where it gives no GPU.
            ([], 2, {}, "cpu"),
            ([], 2, {"CUDA_VISIBLE_DEVICES": "0,1"}, "cpu"),
            # What was chosen stays; a kind is no choice among GPUs.
            (["1"], 2, {"CUDA_VISIBLE_DEVICES": "0,1", "KERASCNN_DEVICE": "cpu"}, "cpu"),
            (["1"], 2, {"CUDA_VISIBLE_DEVICES": "0,1", "KERASCNN_DEVICE": "cuda:0"}, "cuda:0"),
            (["1"], 2, {"CUDA_VISIBLE_DEVICES": "0,1", "KERASCNN_DEVICE": "GPU"}, "gpu:1"),
            ([], 2, {"KERASCNN_DEVICE": "gpu"}, "gpu"),
        ],
    )
    def test_device(self, gpus, size, variables, expected):
        assert ray_train.device_of(gpus, size, variables) == expected

    @pytest.mark.parametrize("shown", ["0", "", "GPU-8a1f"])
    def test_a_gpu_that_is_not_seen(self, shown):
        message = rf"the GPUs \['1'\], .* does not see \['1'\]: CUDA_VISIBLE_DEVICES is '{shown}'"
        with pytest.raises(ValueError, match=message):
            ray_train.device_of(["1"], 2, {"CUDA_VISIBLE_DEVICES": shown})

    def test_three_workers_with_two_gpus_each_have_one(self):
        """Each sees two, so its number on the machine would be none of them."""
        for number in range(3):
            shown = {"CUDA_VISIBLE_DEVICES": f"{2 * number},{2 * number + 1}"}
            device = ray_train.device_of(shown["CUDA_VISIBLE_DEVICES"].split(","), 3, shown)
            assert nccl.own_gpu(number, 2, {**shown, "KERASCNN_DEVICE": device}) == 0
        with pytest.raises(ValueError, match="which has 2 GPUs"):
            nccl.own_gpu(2, 2, shown)


class Workers:
    """Plays the workers of Ray: each has an environment and GPUs, and runs functions here."""

    def __init__(self, environments, gpus):
        self.environments, self.gpus = environments, gpus

    def __len__(self):
        return len(self.environments)

    def get_accelerator_ids(self):
        return {"GPU": self.gpus[self._current], "TPU": []}

    def execute_single(self, rank, function, *arguments):
        self._current = rank
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "environ", self.environments[rank])
            return function(*arguments)

    execute_single_async = execute_single


@pytest.fixture
def start(monkeypatch):
    """Returns a function that starts the backend on workers with these variables and GPUs."""

    def start(environments, gpus):
        workers = Workers(environments, gpus)
        monkeypatch.setattr(ray_train.ray, "get", lambda values: values)
        monkeypatch.setattr(ray_train.ray, "get_runtime_context", lambda: workers)
        monkeypatch.setattr(ray_train.ray.util, "get_node_ip_address", lambda: "10.0.0.1")
        ray_train.KerascnnBackend().on_start(workers, ray_train.KerascnnConfig())
        return environments

    yield start
    if ray_train._held is not None:
        ray_train._held.close()


class TestStarting:
    @pytest.mark.parametrize("hosts", [("a", "a"), ("a", "b")])
    def test_each_worker_gets_its_place_and_its_gpu(self, start, hosts):
        """On one host each is shown one of two GPUs; on two hosts both are shown a GPU 0."""
        gpus = ["0", "1"] if len(set(hosts)) == 1 else ["0", "0"]
        told = start([{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus], [[gpu] for gpu in gpus])
        worlds = [find_world(environ=environment) for environment in told]
        assert worlds[0].ports and 0 < worlds[0].ports[0] < 1 << 16
        expected = World("initialize()", 0, 2, False, "10.0.0.1", worlds[0].ports)
        assert worlds == [expected, expected._replace(rank=1)]
        here = range(2) if len(set(hosts)) == 1 else (0, 0)
        found = [nccl.own_gpu(n, 1, e) for n, e in zip(here, told, strict=True)]
        assert found == [0, 0]

    def test_the_port_stays_free_until_the_first_worker_listens(self, start):
        world = find_world(environ=start([{}, {}], [[], []])[0])
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("", world.ports[0]))
        with star.listen(star.place_of(world)) as server:
            assert server.getsockname()[1] == world.ports[0]

    def test_workers_that_see_all_gpus_of_their_machine(self, start):
        told = start([{"CUDA_VISIBLE_DEVICES": "0,1"} for _ in range(2)], [["1"], ["0"]])
        assert [nccl.own_gpu(n, 2, environment) for n, environment in enumerate(told)] == [1, 0]

    def test_a_start_without_gpus_computes_on_cpus(self, start):
        told = start([{"CUDA_VISIBLE_DEVICES": "0,1"}, {}], [[], []])
        assert [environment["KERASCNN_DEVICE"] for environment in told] == ["cpu", "cpu"]

    def test_what_started_ray_does_not_number_its_workers(self, start):
        """`srun ray start`: all workers of a node have the number of the node."""
        srun = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}
        mpirun = {"PMI_RANK": "0", "PMI_SIZE": "1", "MPI_LOCALRANKID": "0"}
        torchrun = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "a"}
        torchrun["MASTER_PORT"] = "1"
        environments = [{**srun}, {**mpirun}, {**torchrun}]
        with pytest.raises(ValueError, match="Start the processes with one launcher"):
            find_world("10.0.0.1:1", 3, 1, environ=environments[1])
        told = start(environments, [["0"], ["1"], ["2"]])
        assert [find_world(environ=environment).rank for environment in told] == [0, 1, 2]
        for environment, launcher in zip(told, (srun, mpirun, torchrun), strict=True):
            assert not set(environment) & set(launcher)

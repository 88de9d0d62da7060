"""What launchers say in environment variables, and what is wrong with it."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest

import kerascnn as keras
from kerascnn.distribution.launch import ALONE, find_world

from .conftest import environment

TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}
BY_HAND = {
    "KERAS_DISTRIBUTION_JOB_ADDRESSES": "10.0.0.1:1,10.0.0.2:1",
    "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
    "KERAS_DISTRIBUTION_PROCESS_ID": "1",
}
SRUN = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "0"}


@pytest.mark.parametrize(
    ("variables", "rank", "size", "is_mpi"),
    [
        ({"PMI_RANK": "2", "PMI_SIZE": "3"}, 2, 3, True),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, 0, 2, True),
        (SRUN, 3, 8, True),
        (TORCHRUN, 1, 4, False),
        (BY_HAND, 1, 2, False),
        ({**SRUN, "PMI_RANK": "3", "PMI_SIZE": "8"}, 3, 8, True),
        ({**BY_HAND, "PMI_RANK": "1", "PMI_SIZE": "2"}, 1, 2, True),
    ],
)
def test_launchers(variables, rank, size, is_mpi):
    world = find_world(environ=variables)
    assert (world.rank, world.size, world.is_mpi) == (rank, size, is_mpi)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "8"},  # a batch script
        {"MASTER_ADDR": "here"},
    ],
)
def test_a_process_that_nobody_started_is_alone(variables):
    assert find_world(environ=variables) == ALONE


@pytest.mark.parametrize(
    ("variables", "host", "ports", "attempt"),
    [
        (TORCHRUN, "127.0.0.1", (29500,), "/"),
        (
            {**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "False", "TORCHELASTIC_RUN_ID": "a"},
            "127.0.0.1",
            (29500,),
            "a/",
        ),
        (
            {
                **TORCHRUN,
                "MASTER_PORT": "65533",
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                "TORCHELASTIC_RUN_ID": "none",
                "TORCHELASTIC_RESTART_COUNT": "2",
            },
            "127.0.0.1",
            (65534, 65535),  # the agent itself is at MASTER_PORT
            "none/2",
        ),
        (BY_HAND, "10.0.0.1", (1,), ""),
        ({**BY_HAND, "KERAS_DISTRIBUTION_JOB_ADDRESSES": "[fd00::1]:7"}, "fd00::1", (7,), ""),
        ({**BY_HAND, "KERAS_DISTRIBUTION_JOB_ADDRESSES": "a,b"}, "a", (), ""),
        ({"PMI_RANK": "2", "PMI_SIZE": "3"}, None, (), ""),
    ],
)
def test_where_processes_meet(variables, host, ports, attempt):
    world = find_world(environ=variables)
    assert (world.host, world.ports, world.attempt) == (host, ports, attempt)


def test_arguments():
    world = find_world(num_processes=4, process_id=2, environ={})
    assert (world.rank, world.size) == (2, 4)
    assert find_world("a:1", 4, 2, environ={}).size == 4  # the address of the first one is enough


@pytest.mark.parametrize(
    ("variables", "arguments", "message"),
    [
        ({"RANK": "0"}, {}, "RANK is set as by torchrun, but not WORLD_SIZE, MASTER_ADDR"),
        ({**TORCHRUN, "RANK": "one"}, {}, "RANK must be a whole number. Received: 'one'"),
        ({**TORCHRUN, "RANK": "4"}, {}, "RANK from 0 to WORLD_SIZE - 1. Received: RANK=4"),
        ({"PMI_SIZE": "2"}, {}, "PMI_SIZE is set as by mpirun .* but not PMI_RANK"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, {}, "but not OMPI_COMM_WORLD_SIZE"),
        ({"SLURM_STEP_NUM_TASKS": "2"}, {}, "but not SLURM_PROCID"),
        ({"PMI_RANK": "-1", "PMI_SIZE": "2"}, {}, "Received: PMI_RANK=-1, PMI_SIZE=2"),
        ({"PMI_RANK": "0", "PMI_SIZE": "0"}, {}, "PMI_SIZE must be 1 or more"),
        ({**TORCHRUN, "LOCAL_RANK": "x"}, {}, "LOCAL_RANK must be a whole number"),
        ({**TORCHRUN, "PMI_RANK": "1", "PMI_SIZE": "2"}, {}, "but torchrun says .* 1 of 4"),
        ({**TORCHRUN, "MASTER_PORT": "http"}, {}, "MASTER_PORT must be a whole number"),
        ({**TORCHRUN, "MASTER_PORT": "70000"}, {}, "MASTER_PORT must be from 1 to 65535"),
        (
            {**BY_HAND, "KERAS_DISTRIBUTION_JOB_ADDRESSES": "a:b"},
            {},
            "must be host:port, with a port from 1 to 65535 .* Received: 'a:b'",
        ),
        (
            {**BY_HAND, "KERAS_DISTRIBUTION_JOB_ADDRESSES": "fd00::1"},
            {},
            r"and \[host\]:port for IPv6\). Received: 'fd00::1'",
        ),
        ({}, {"num_processes": 2}, r"process_id \(KERAS_DISTRIBUTION_PROCESS_ID\) is missing"),
        ({}, {"process_id": 0}, "num_processes .* is missing"),
        ({}, {"job_addresses": "a:1"}, "num_processes .* and process_id .* are missing"),
        ({}, {"num_processes": 2, "process_id": 2}, "process_id=2, num_processes=2"),
        (
            {},
            {"job_addresses": "a,b,c", "num_processes": 2, "process_id": 0},
            "3 addresses for num_processes=2",
        ),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "2"},
            {"num_processes": 4, "process_id": 1},
            r"says that this is process 1 of 2, but initialize\(\) says that it is process 1 of 4",
        ),
    ],
)
def test_errors(variables, arguments, message):
    with pytest.raises(ValueError, match=message):
        find_world(environ=variables, **arguments)


@pytest.fixture
def fresh(monkeypatch):
    """Undoes what initialize() did, and hides launchers."""
    from kerascnn.distribution import launch, processes

    monkeypatch.setattr(processes, "_world", None)
    for name in BY_HAND:
        monkeypatch.delenv(name, raising=False)
    for launcher in launch.LAUNCHERS:
        for name in (launcher.rank, launcher.size, *launcher.others):
            monkeypatch.delenv(name, raising=False)
    yield monkeypatch
    keras.distribution.set_distribution(None)


def test_before_initialize(fresh):
    for name, value in TORCHRUN.items():
        fresh.setenv(name, value)
    with pytest.raises(RuntimeError, match=r"call keras.distribution.initialize\(\) first"):
        keras.distribution.DataParallel()


def test_processes_without_an_address(mpich):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import kerascnn; kerascnn.distribution.initialize(num_processes=2, process_id=1)",
        ],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "there are 2 processes, but not where they can meet" in done.stderr
    assert "KERAS_DISTRIBUTION_JOB_ADDRESSES=host:port" in done.stderr


def test_without_mpi4py(fresh):
    fresh.setenv("PMI_RANK", "0")
    fresh.setenv("PMI_SIZE", "2")
    fresh.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ImportError, match=r"pip install 'kerascnn\[mpi\]'"):
        keras.distribution.initialize()


def test_without_ray(fresh):
    fresh.setitem(sys.modules, "ray", None)
    fresh.delitem(sys.modules, "kerascnn.distribution.ray_train", raising=False)
    with pytest.raises(ImportError, match=r"needs Ray Train.*pip install 'kerascnn\[ray\]'"):
        importlib.import_module("kerascnn.distribution.ray_train")


def test_initialize_twice(fresh):
    keras.distribution.initialize()
    keras.distribution.initialize()
    with pytest.raises(RuntimeError, match="A process joins others once"):
        keras.distribution.initialize(num_processes=2, process_id=0)


def test_a_launcher_of_one_process(fresh):
    for name, value in {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1"}.items():
        fresh.setenv(name, value)
    keras.distribution.initialize()
    assert keras.distribution.num_processes() == 1
    assert keras.distribution.process_id() == 0


@pytest.mark.parametrize("value", ["soon", "0", "-1", "inf"])
def test_a_timeout_that_is_none(fresh, value):
    from kerascnn.distribution import processes

    fresh.setenv("KERASCNN_DISTRIBUTION_TIMEOUT", value)
    with pytest.raises(ValueError, match="KERASCNN_DISTRIBUTION_TIMEOUT must be a number of sec"):
        processes.patience()


class TestDistributions:
    def test_one_device(self, fresh):
        distribution = keras.distribution.DataParallel(devices=["cpu:0"])
        assert distribution.device_mesh.devices.tolist() == ["cpu:0"]
        assert (distribution.num_model_replicas, distribution.data_shard_id) == (1, 0)
        assert distribution.batch_dim_name == "batch"
        assert distribution.auto_shard_dataset
        assert distribution.reduce_dtype is None
        rounding = keras.distribution.DataParallel(devices=["cpu:0"], reduce_dtype=np.float16)
        assert rounding.reduce_dtype == "float16"
        with distribution.scope():
            assert keras.distribution.distribution() is distribution
        assert keras.distribution.distribution() is None

    def test_errors(self, fresh):
        mesh = keras.distribution.DeviceMesh((1,), ["batch"], ["cpu:0"])
        assert keras.distribution.DataParallel(mesh).device_mesh is mesh
        with pytest.raises(ValueError, match="not both"):
            keras.distribution.DataParallel(mesh, ["cpu:0"])
        with pytest.raises(ValueError, match="must be a DeviceMesh"):
            keras.distribution.DataParallel("cpu:0")
        with pytest.raises(ValueError, match="can't be listed twice: cpu:0"):
            keras.distribution.DataParallel(devices=["cpu:0", "cpu:0"])
        with pytest.raises(ValueError, match="no device 'cpu:1'.*KERASCNN_CPU_DEVICES=2"):
            keras.distribution.DataParallel(devices=["cpu:0", "cpu:1"])
        with pytest.raises(ValueError, match="There is no device 'cpu:7'"):
            keras.distribution.DataParallel(devices=["cpu:7"])
        with pytest.raises(ValueError, match="has 2 devices. Received 1"):
            keras.distribution.DeviceMesh((2,), ["batch"], ["cpu:0"])
        for dtype in ("int32", "float12", 3):
            with pytest.raises(ValueError, match=f"`reduce_dtype` must be .* Received: {dtype!r}"):
                keras.distribution.DataParallel(devices=["cpu:0"], reduce_dtype=dtype)
        with pytest.raises(ValueError, match="one entry for each axis"):
            keras.distribution.DeviceMesh((1, 1), ["batch"], ["cpu:0"])
        with pytest.raises(ValueError, match="'cpu' or 'gpu'"):
            keras.distribution.list_devices("tpu")
        with pytest.raises(TypeError, match="takes a keras.distribution.DataParallel, or None"):
            keras.distribution.set_distribution("all")

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("ModelParallel", ()),
            ("LayoutMap", (None,)),
            ("TensorLayout", (["batch"],)),
            ("distribute_tensor", (None, None)),
        ],
    )
    def test_what_is_not_available(self, name, arguments):
        with pytest.raises(NotImplementedError, match=f"{name} is not available.*DataParallel"):
            getattr(keras.distribution, name)(*arguments)

    def test_several_processes(self, fresh):
        from kerascnn.distribution import data_parallel, processes
        from kerascnn.distribution.launch import World

        fresh.setattr(processes, "_world", World("a test", 1, 3, True))
        assert keras.distribution.list_devices("cpu") == ["cpu:0", "cpu:1", "cpu:2"]
        assert keras.distribution.get_device_count("cpu") == 3
        fresh.setattr(data_parallel, "current_device", lambda: "cpu")
        assert keras.distribution.DataParallel().num_model_replicas == 3
        with pytest.raises(
            ValueError, match=r"has all of these and no other. Received: \['cpu:0'\]"
        ):
            keras.distribution.DataParallel(devices=["cpu:0"])
        with pytest.raises(ValueError, match="and no other. Received"):
            keras.distribution.DataParallel(devices=["cpu:0", "cpu:1", "cpu:3"])
        fresh.setattr(data_parallel, "current_device", lambda: "cuda:0")
        with pytest.raises(RuntimeError, match="for training on cpu, but computes on cuda:0 now"):
            keras.distribution.DataParallel()

    def test_one_process_imports_no_engine(self):
        code = (
            "import sys, numpy as np, kerascnn as keras; keras.distribution.initialize(); "
            "d = keras.distribution; d.set_distribution(d.DataParallel()); "
            "model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]); "
            "model.compile('sgd', 'mse'); model.fit(np.ones((1, 2)), np.ones((1, 1)), verbose=0); "
            "from kerascnn.distribution import replicas; assert replicas.active() is None; "
            "print(sorted(m for m in sys.modules if m.split('.')[0] in ('mpi4py', 'ray')))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == "[]"

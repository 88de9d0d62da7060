"""Processes that launchers start on this machine, or with a GPU each; skipped where none can."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kerascnn as keras
from kerascnn import _core
from kerascnn.distribution import replicas

# No test depends on how fast a machine is. What takes longer than this hangs.
PATIENCE = 600
PATIENCE_ON_GPUS = 150
WORK = Path(__file__).with_name("work.py")
# Variables of a Ray that asks its workers often, and does nothing besides.
QUICK_RAY = {
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
}


# Open MPI's mpirun refuses to start for root, which is the user of many a container, and starts no
# more processes than there are cores. Its versions 4 and 5 have different names for the latter.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def find_mpirun() -> str | None:
    """Returns the mpirun of the environment that mpi4py is in: another one may be another MPI."""
    spec = importlib.util.find_spec("mpi4py")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    for folder in (Path(sys.executable).parent, *(p / "bin" for p in package.parents)):
        if (folder / "mpirun").exists():
            return str(folder / "mpirun")
    return shutil.which("mpirun")


@functools.cache
def has_mpich() -> bool:
    """Whether processes can meet by themselves; Open MPI connects those of its own mpirun only."""
    mpirun = find_mpirun()
    if mpirun is None:
        return False
    said = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
    return "Open MPI" not in said.stdout


def need_mpich() -> None:
    if not has_mpich():
        pytest.skip("the mpirun is Open MPI's, and processes meet by MPICH (kerascnn[mpi])")


def environment(**more: str) -> dict[str, str]:
    """The environment of a process with one thread, alone if it is started without mpirun."""
    launchers = ("PMI_", "OMPI_", "SLURM_", "MPI_", "KERAS_DISTRIBUTION_", "TORCHELASTIC_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        kept.pop(name, None)
    alone = {"OMP_NUM_THREADS": "1", "KERASCNN_NUM_THREADS": "1", "KERASCNN_DEVICE": "cpu"}
    # No process is given up because this machine does something else.
    alone["KERASCNN_DISTRIBUTION_TIMEOUT"] = "120"
    # Processes of one machine that has no other address meet on the loopback.
    loopback = {"HYDRA_IFACE": "lo", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "lo"}
    return {**kept, **alone, **loopback, **OPEN_MPI, **more}


def free_port() -> int:
    """Returns a port of the loopback that stays free for who listens at it by its number.

    A socket holds it until the tests end. Nobody else is given it then, and as it does not listen
    itself, a server may, which has SO_REUSEADDR like those of Python.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    atexit.register(holder.close)
    return holder.getsockname()[1]


class Outcome:
    """How processes ended, and what they said."""

    def __init__(self, code: int, output: str):
        self.code = code
        self.output = output


def run(command: list[str], **variables: str) -> Outcome:
    """Runs a command until it ends."""
    done = subprocess.run(
        command,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Outcome(done.returncode, done.stdout)


def start_on_gpus(size: int, *arguments: object, script: Path = WORK, **variables: str) -> Outcome:
    """Runs a script in so many processes with a GPU each, with the variables of torchrun."""
    port = str(free_port())
    command = [sys.executable, str(script), *map(str, arguments)]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size)}
    running = []
    for rank in range(size):
        place = {**address, "RANK": str(rank), "LOCAL_RANK": str(rank)} if size > 1 else {}
        given = {"KERASCNN_DEVICE": "gpu" if size > 1 else "gpu:0", **place, **variables}
        output = tempfile.TemporaryFile("w+")  # noqa: SIM115
        process = subprocess.Popen(
            command, env=environment(**given), stdout=output, stderr=subprocess.STDOUT
        )
        running.append((process, output))
    codes, said = [], []
    for process, output in running:
        with output:
            try:
                codes.append(process.wait(PATIENCE_ON_GPUS))
            finally:
                process.kill()
                process.wait()
            output.seek(0)
            said.append(output.read())
    return Outcome(max(codes, key=abs), "".join(said))


@pytest.fixture
def alone_afterwards() -> Iterator[None]:
    """Takes away what a test lets play other processes."""
    yield
    _core.clear_collectives()
    replicas.activate(None)


@pytest.fixture(scope="session")
def two_gpus() -> None:
    """Skips a test where there are no two GPUs, or no NCCL."""
    gpus = [name for name, is_usable, _ in _core.list_devices() if is_usable and name != "cpu"]
    if len(gpus) < 2:
        pytest.skip(f"it needs two GPUs, and there are {gpus or 'none'}")


@pytest.fixture
def several_cpus(on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets the CPU count as three devices, for a training in this process."""
    monkeypatch.setenv("KERASCNN_CPU_DEVICES", "3")
    before = keras.config.floatx()
    yield
    keras.config.set_floatx(before)
    keras.distribution.set_distribution(None)


@contextlib.contextmanager
def on_cpus(size: int) -> Iterator[None]:
    """A block that trains on so many of the devices that the CPU counts as."""
    devices = [f"cpu:{i}" for i in range(size)]
    with keras.device("cpu"), keras.distribution.DataParallel(devices=devices).scope():
        yield


def trained_on_cpus(job: str, size: int, folder: Path | None = None) -> dict[str, Any]:
    """Returns what a job of `work.py` gives on so many devices, as its `main` runs it."""
    from . import work

    with on_cpus(size):
        keras.backend.clear_session()  # names of metrics begin anew
        keras.config.set_floatx("float64")
        keras.utils.set_random_seed(7)
        function = work.find_job(job)
        return function(folder) if function.__code__.co_argcount else function()


def start(size: int, *arguments: object, script: Path = WORK, **variables: str) -> Outcome:
    """Runs a script in so many processes: by mpirun, or by itself where there is one."""
    command = [sys.executable, str(script), *map(str, arguments)]
    if size > 1:
        mpirun = find_mpirun()
        assert mpirun is not None
        command = [mpirun, "-n", str(size), *command]
    return run(command, **variables)


def start_by_hand(
    size: int,
    *arguments: object,
    script: Path = WORK,
    before: dict[int, list[str]] | None = None,
    **variables: str,
) -> Outcome:
    """Starts each process by itself, as people do with Keras' variables; nobody watches them.

    Args:
        before: The beginnings of the commands of some processes, such as `ip netns exec NAME`.
    """
    need_mpich()
    address = variables.pop("address", f"127.0.0.1:{free_port()}")
    started = []
    for rank in range(size):
        own = {
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": address,
            "KERAS_DISTRIBUTION_NUM_PROCESSES": str(size),
            "KERAS_DISTRIBUTION_PROCESS_ID": str(rank),
        }
        started.append(
            subprocess.Popen(
                [*(before or {}).get(rank, []), sys.executable, str(script), *map(str, arguments)],
                env=environment(**{**own, **variables}),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    outputs = []
    try:
        for process in started:
            outputs.append(process.communicate(timeout=PATIENCE)[0])
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
    return Outcome(max(abs(p.returncode) for p in started), "".join(outputs))


def processes_with(variables: dict[str, str]) -> dict[int, str]:
    """Returns the commands of processes that were started with these variables, by their number.

    Those that have ended and only wait to be noticed don't count.
    """
    wanted = {f"{name}={value}".encode() for name, value in variables.items()}
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            status = (path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            if status != "Z" and wanted <= set((path / "environ").read_bytes().split(b"\0")):
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(path.name)] = command.decode(errors="replace")
    return found


def check_nobody_left(variables: dict[str, str]) -> None:
    """Waits until no process has these variables, which takes the system a moment."""
    end = time.monotonic() + 120
    while left := processes_with(variables):
        assert time.monotonic() < end, f"left over: {left}"
        time.sleep(0.1)


@pytest.fixture(scope="session")
def mpi() -> None:
    """Skips a test where there is no MPI."""
    if find_mpirun() is None:
        pytest.skip("mpi4py and an mpirun are not installed (pip install 'kerascnn[mpi]')")


@pytest.fixture(scope="session")
def mpich(mpi) -> None:
    """Skips a test where processes can't meet by themselves."""
    need_mpich()

"""Processes that `mpirun` starts on this machine, or with a GPU each; skipped where none can."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kerascnn import _core

# No test depends on how fast a machine is. What takes longer than this hangs.
PATIENCE = 300
PATIENCE_ON_GPUS = 150
WORK = Path(__file__).with_name("work.py")


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


def environment(**more: str) -> dict[str, str]:
    """The environment of a process with one thread, alone if it is started without mpirun."""
    launchers = ("PMI_", "OMPI_", "SLURM_", "MPI_", "KERAS_DISTRIBUTION_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        kept.pop(name, None)
    alone = {"OMP_NUM_THREADS": "1", "KERASCNN_NUM_THREADS": "1", "KERASCNN_DEVICE": "cpu"}
    # Processes of one machine that has no other address meet on the loopback.
    loopback = {"HYDRA_IFACE": "lo", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "lo"}
    return {**kept, **alone, **loopback, **more}


class Outcome:
    """How processes ended, and what they said."""

    def __init__(self, code: int, output: str):
        self.code = code
        self.output = output


def start(size: int, *arguments: object, script: Path = WORK, **variables: str) -> Outcome:
    """Runs a script in so many processes: by mpirun, or by itself where there is one."""
    command = [sys.executable, str(script), *map(str, arguments)]
    if size > 1:
        mpirun = find_mpirun()
        assert mpirun is not None
        command = [mpirun, "-n", str(size), *command]
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
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    command = [sys.executable, str(script), *map(str, arguments)]
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size)}
    running = []
    for rank in range(size):
        place = {**address, "RANK": str(rank), "LOCAL_RANK": str(rank)} if size > 1 else {}
        given = {"KERASCNN_DEVICE": "gpu", **place, **variables}
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


@pytest.fixture(scope="session")
def two_gpus() -> None:
    """Skips a test where there are no two GPUs, or no NCCL."""
    gpus = [name for name, is_usable, _ in _core.list_devices() if is_usable and name != "cpu"]
    if len(gpus) < 2:
        pytest.skip(f"it needs two GPUs, and there are {gpus or 'none'}")


@pytest.fixture(scope="session")
def mpi() -> None:
    """Skips a test where there is no MPI."""
    if find_mpirun() is None:
        pytest.skip("mpi4py and an mpirun are not installed (pip install 'kerascnn[mpi]')")

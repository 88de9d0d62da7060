"""What can go wrong where MPICH's process manager connects processes; threads play them."""

from __future__ import annotations

import pytest

from kerascnn.distribution import process_manager
from kerascnn.distribution.launch import World

from .conftest import free_port
from .test_star import LONG, in_threads, meet, places

WORLD = World("torchrun", 1, 2, False, "127.0.0.1", (29500,))


class Mpi:
    """Plays mpi4py.MPI."""

    def __init__(self, vendor="MPICH", begun=False):
        self.vendor, self.begun = vendor, begun

    def Is_initialized(self):
        return self.begun

    def get_vendor(self):
        return self.vendor, (5, 0, 0)


def test_mpi_has_begun():
    with pytest.raises(RuntimeError, match="has begun in this one .* before anything imports mpi4"):
        process_manager.join(Mpi(begun=True), WORLD, LONG)


def test_another_mpi():
    with pytest.raises(RuntimeError, match="connects by MPICH; mpi4py has loaded Open MPI"):
        process_manager.join(Mpi("Open MPI"), WORLD, LONG)


@pytest.fixture
def manager(monkeypatch, tmp_path):
    """Returns a function that makes a program the process manager of two processes.

    It gives what it says in each of them.
    """

    def start(script):
        program = tmp_path / "mpiexec"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(process_manager, "_find_mpiexec", lambda: str(program))
        stars = meet(places(2, [free_port()]))
        try:
            return in_threads(
                [lambda one=one: process_manager._start_manager(one, LONG) for one in stars]
            )
        finally:
            for one in stars:
                one.close()

    return start


def test_a_manager(manager):
    assert manager("echo port=a.machine:4711; cat") == [4711, 4711]
    process_manager._managers.pop().communicate()


@pytest.mark.parametrize("script", ["echo it is broken; exit 3", "echo it is broken >&2", "exit 0"])
def test_a_manager_that_does_not_start(manager, script):
    for error in manager(script):
        assert isinstance(error, RuntimeError)
        assert "can't be connected, because of process 0 on " in str(error)
        assert "MPICH's process manager did not start." in str(error)
        assert ("it is broken" in str(error)) == ("broken" in script)


def test_there_is_no_manager(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(process_manager.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(process_manager, "_places_of_mpi4py", lambda: [tmp_path])
    with pytest.raises(RuntimeError, match="nor on the PATH. Install it: pip install mpich"):
        process_manager._find_mpiexec()

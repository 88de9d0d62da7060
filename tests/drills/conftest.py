"""What drills share: processes that are disturbed on purpose.

A drill does to a training what happens to trainings, and then checks the promise: files are whole,
weights are finite, the next `fit` is right, nothing is left behind. In every run of the tests a
drill does little of it; `pytest tests/drills --thorough` does a lot, and says at its end what each
drill has done. The seed of a run is KERASCNN_TEST_SEED, as for all tests.
"""

import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Processes find modules of this folder by name.
sys.path.insert(0, str(Path(__file__).parent))

# No drill depends on how fast a machine is. A process that takes longer than this hangs.
PATIENCE = 600


@pytest.fixture(scope="session")
def processes():
    """Returns a function that runs another one in a process of its own, and gives its exit code.

    They are forked from a process that has imported kerascnn and done nothing else, so that a
    drill can afford hundreds of them.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kerascnn", "trainings"])

    def run(function, *arguments):
        process = context.Process(target=function, args=arguments)
        process.start()
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()
            pytest.fail(f"{function.__name__}{arguments} did not end in {PATIENCE} s")
        return process.exitcode

    return run


def compiled(source, folder):
    """Compiles a C file of this folder; returns the path of the library, or skips the test."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path = folder / f"{source.stem}.so"
    options = ["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run([compiler, *options, source, "-o", path, "-ldl"], check=True)
    return path

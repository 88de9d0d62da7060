"""Signals at any moment change no result and write nowhere but on stacks."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE, compiled

HERE = Path(__file__).parent
CHILD = HERE / "signalled.py"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the stacks of Linux")

# The newest instructions and those for which oneDNN 3.2 generates products that move the stack
# pointer into the heap. Own kernels leave many products to it there.
INSTRUCTIONS = ["DEFAULT", "AVX2"] if platform.machine() == "x86_64" else ["DEFAULT"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Returns the path of `signal_frames.c`, compiled."""
    return compiled(HERE / "signal_frames.c", tmp_path_factory.mktemp("signals"))


def run(*arguments, instructions="DEFAULT"):
    # Two threads, so that there are some that signals might meet; NumPy starts none of its own.
    environment = os.environ | {
        "ONEDNN_MAX_CPU_ISA": instructions,
        "KERASCNN_DEVICE": "cpu",
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    command = [sys.executable, CHILD, *map(str, arguments)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@pytest.mark.parametrize(
    ("timer", "has_own_stack"), [("real", 1), ("real", 0), ("prof", 1)], ids=str
)
def test_handlers_have_a_stack(timer, has_own_stack, instructions, library, amount):
    """Also those that don't ask for one of their own, while kernels are known to have none."""
    # The system looks at ITIMER_PROF with each of its ticks only, 100 to 1,000 times a second.
    signals = amount(300, 30_000) if timer == "real" else amount(100, 5_000)
    run("frames", library, timer, has_own_stack, signals, instructions=instructions)


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
def test_results_are_the_same_under_handlers_in_python(instructions, library, amount):
    run("python_handlers", library, amount(100, 5_000), instructions=instructions)


def test_fit_may_be_interrupted_at_any_moment(rng, amount):
    run("interruptions", rng.integers(2**31), amount(6, 400))

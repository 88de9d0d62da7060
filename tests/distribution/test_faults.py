"""A process that fails ends all of them, with an error that names it."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

from .conftest import start

SCRIPT = Path(__file__).with_name("faults.py")


@pytest.fixture
def run(mpi, tmp_path):
    """Returns a function that lets one of three processes fail and checks that none is left."""

    def run(kind, rank, step=5, timeout=3):
        seconds = {"KERASCNN_DISTRIBUTION_TIMEOUT": str(timeout)}
        before = set(tmp_path.iterdir())
        outcome = start(3, kind, rank, step, tmp_path, script=SCRIPT, **seconds)
        new = [path.name for path in set(tmp_path.iterdir()) - before]
        check_all_ended(outcome, [int(name) for name in new if name.isdigit()])
        return outcome

    return run


def is_left(pid: int) -> bool:
    """Tells whether a process is there and is none that only waits to be noticed as ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def check_all_ended(outcome, pids):
    assert outcome.code != 0
    assert "trained" not in outcome.output
    assert len(pids) == 3, outcome.output
    for _ in range(300):
        if not any(is_left(pid) for pid in pids):
            return
        time.sleep(0.1)
    raise AssertionError(f"left over: {[pid for pid in pids if is_left(pid)]}")


@pytest.mark.parametrize("rank", [0, 2])
def test_an_error(run, rank):
    outcome = run("raises", rank, timeout=60)
    assert f"kerascnn: process {rank} of 3 on " in outcome.output
    assert "failed with ArithmeticError: out of luck" in outcome.output
    assert outcome.output.count("kerascnn: process") == 1


def trained(folder):
    """The weights after a training that nothing disturbs; it goes on from the state in `folder`."""
    outcome = start(3, "none", 0, 0, folder, script=SCRIPT)
    assert outcome.code == 0, outcome.output
    return np.load(folder / "weights.npy")


def test_kills(run, rng, amount, tmp_path, tmp_path_factory):
    """Any process, before any step: all end, and the next training ends with the same bits."""
    expected = trained(tmp_path_factory.mktemp("undisturbed"))
    for _ in range(amount(1, 17)):
        for _ in range(3):  # a training has 30 steps, of which each of these takes at most 9
            run("killed", int(rng.integers(3)), int(rng.integers(10)), timeout=60)
        assert trained(tmp_path).tobytes() == expected.tobytes()
        (tmp_path / "weights.npy").unlink()


@pytest.mark.parametrize("kind", ["stalls", "sleeps"])
def test_a_process_that_hangs(run, kind):
    outcome = run(kind, 1)
    assert "has waited for 3 seconds for process 1, which hangs, has ended" in outcome.output
    assert "KERASCNN_DISTRIBUTION_TIMEOUT" in outcome.output


def test_a_process_that_leaves(run):
    run("leaves", 1)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("weights", r"the weight '[^']*vars/0' is different: process 0 has float32 \(3, 2\) with"),
        (
            "data",
            "the number of batches of an epoch is different: process 0 has 3, process 1 has 4",
        ),
        ("epochs", "the number of epochs is different: process 0 has 10, process 1 has 11"),
        ("dtype", r"floatx\(\) is different: process 0 has float32, process 1 has float64"),
        ("batch", "`batch_size` counts the samples of all processes together.* batch_size=3"),
    ],
)
def test_processes_that_differ(run, kind, message):
    outcome = run(kind, 1, timeout=60)
    assert re.search(message, outcome.output), outcome.output

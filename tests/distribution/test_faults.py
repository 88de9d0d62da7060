"""A process that fails ends all of them, with an error that names it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from .conftest import check_nobody_left, has_mpich, start, start_by_hand

SCRIPT = Path(__file__).with_name("faults.py")
WAYS = {"by mpirun": start, "by hand": start_by_hand}
# Where one is waited for in vain.
SHORT = {"KERASCNN_TEST_PATIENCE": "3"}


@pytest.fixture
def run(mpi, tmp_path):
    """Returns a function that lets one of three processes fail and checks that none is left."""

    def run(plan, how="by mpirun", **variables):
        mark = {"KERASCNN_TEST_DRILL": str(tmp_path)}
        outcome = WAYS[how](3, plan, tmp_path, script=SCRIPT, **mark, **variables)
        assert outcome.code != 0
        assert "trained" not in outcome.output
        check_nobody_left(mark)
        return outcome

    return run


@pytest.mark.parametrize(("rank", "how"), [(0, "by mpirun"), (2, "by mpirun"), (2, "by hand")])
def test_an_error(run, rank, how):
    outcome = run(f"raises@{rank}:5", how)
    assert f"kerascnn: process {rank} of 3 on " in outcome.output
    assert "failed with ArithmeticError: out of luck" in outcome.output
    if how == "by mpirun":
        assert outcome.output.count("kerascnn: process") == 1


def trained(folder):
    """The weights after a training that nothing disturbs; it goes on from the state in `folder`."""
    outcome = start(3, "none", folder, script=SCRIPT)
    assert outcome.code == 0, outcome.output
    return np.load(folder / "weights.npy")


def test_kills(run, rng, amount, tmp_path, tmp_path_factory):
    """Any process, before any step: all end, and the next training ends with the same bits."""
    expected = trained(tmp_path_factory.mktemp("undisturbed"))
    for _ in range(amount(1, 17)):
        for how in ("by mpirun", "by mpirun", "by hand" if has_mpich() else "by mpirun"):
            # A training has 30 steps, of which each of these takes at most 9.
            failed = len(list(tmp_path.glob("failed-*")))
            plan = [f"killed@{rng.integers(3)}:{rng.integers(10)}"] * (failed + 1)
            outcome = run(",".join(plan), how)
            assert len(list(tmp_path.glob("failed-*"))) == failed + 1, outcome.output
        assert trained(tmp_path).tobytes() == expected.tobytes()
        (tmp_path / "weights.npy").unlink()
        for mark in tmp_path.glob("failed-*"):
            mark.unlink()


@pytest.mark.parametrize(("kind", "how"), [("stalls", "by mpirun"), ("sleeps", "by hand")])
def test_a_process_that_hangs(run, kind, how, amount):
    if how == "by hand" and amount(True, False):
        pytest.skip("only with --thorough")  # its thread waits ten seconds
    outcome = run(f"{kind}@1:5", how, **SHORT)
    # Another one may be late besides.
    said = r"has waited for 3 seconds for process(es)? ([02], )?1(, 2)?, which hangs, has ended"
    assert re.search(said, outcome.output), outcome.output
    assert "KERASCNN_DISTRIBUTION_TIMEOUT" in outcome.output


def test_a_process_that_leaves(run):
    run("leaves@1:5", **SHORT)


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
    outcome = run(f"{kind}@1:0")
    assert re.search(message, outcome.output), outcome.output

"""Trainings on machines with a network between them, which network namespaces stand for."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from .conftest import check_nobody_left, start, start_by_hand
from .network import VARIABLES, Network, NoNetwork

SCRIPT = Path(__file__).with_name("faults.py")
SIZE = 3


@pytest.fixture
def machines(mpi):
    """Three machines; skips a test where there can't be any."""
    try:
        with Network(SIZE) as network:
            yield network
    except NoNetwork as reason:
        pytest.skip(f"no network namespaces: {reason}")


def train(machines, plan, folder, **variables):
    return start_by_hand(
        SIZE,
        plan,
        folder,
        script=SCRIPT,
        before={i: machines.command(i) for i in range(SIZE)},
        address=f"{machines.address(0)}:29500",
        **VARIABLES,
        **variables,
    )


def test_machines_train_as_processes_of_one(machines, amount, tmp_path, tmp_path_factory):
    if amount(True, False):
        pytest.skip("only with --thorough")
    before = [machines.bytes_sent(i) for i in range(SIZE)]
    outcome = train(machines, "none", tmp_path)
    assert outcome.code == 0, outcome.output
    for i in range(SIZE):  # they really talk over the network
        assert machines.bytes_sent(i) - before[i] > 30 * 2 * 64
    alone = tmp_path_factory.mktemp("alone")
    assert start(SIZE, "none", alone, script=SCRIPT).code == 0
    expected, found = (np.load(folder / "weights.npy") for folder in (alone, tmp_path))
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("rank", [0, 2])
def test_a_cable_that_is_pulled(machines, rank, amount, tmp_path):
    """All end, on both sides, with an error that names who can't be reached; nobody waits."""
    if rank == 0 and amount(True, False):
        pytest.skip("only with --thorough")
    mark = {"KERASCNN_TEST_DRILL": str(tmp_path)}
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            train,
            machines,
            "waits@1:5",
            tmp_path,
            **{"KERASCNN_TEST_PATIENCE": "5", **mark},
        )
        while len(list(tmp_path.glob("waits-*"))) < SIZE:
            assert not running.done(), running.result().output
            time.sleep(0.01)
        machines.cut(rank)
        (tmp_path / "go").touch()
        outcome = running.result()
    assert outcome.code != 0
    assert "trained" not in outcome.output
    said = re.findall(
        r"Process (\d) of 3 has waited for 5 seconds for process(?:es)? ([\d, ]*\d)", outcome.output
    )
    assert {waiting for waiting, missing in said if str(rank) in missing} - {str(rank)}, (
        outcome.output
    )
    assert str(rank) in {waiting for waiting, _ in said}, outcome.output
    check_nobody_left(mark)

"""Training with two GPUs gives what one gives on the whole batches. These tests need two GPUs."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

from .conftest import check_nobody_left, start_on_gpus
from .test_faults import SCRIPT
from .test_training import (
    OTHERS,
    RESUMED,
    SAME,
    TOLERANCE,
    check_equal,
    check_owned,
    check_rounded,
    check_state_bytes,
    results,
)

WORK = Path(__file__).with_name("gpu_work.py")
LONG_LOOPS = Path(__file__).with_name("long_loops.py")
AT_ONCE = (
    "net_c_at_once",
    "net_c_in_buckets",
    "net_c_gathering",
)
STATEFUL = ("smooth_gathered", "smooth_momentum")
SHARED = ("smooth_momentum", "net_c_adam", "smooth_gathered")  # and the same with state in parts
SHARING = ("net_c_adam", *(f"{job}_sharing" for job in SHARED))
JOBS = ("sums", "net_c", *AT_ONCE, *STATEFUL, *SHARING, "small_resnet", "mixed")
# In float32 without TF32 after 50 steps, of plain SGD, and of a network with batch normalization.
NEAR = {"net_c": 1e-4, **dict.fromkeys(AT_ONCE, 1e-3), "small_resnet": 1e-2}
# What other processes' work.py does needs no more of a GPU than the ops of dense layers.
FLOAT64 = tuple(job for job in SAME if job != "digits")


@pytest.fixture(scope="module")
def runs(two_gpus, tmp_path_factory):
    """Returns a function that gives the folder with the results of so many GPUs."""
    folders = {}

    def run(size, again=0):
        key = size, again
        if key not in folders:
            folder = tmp_path_factory.mktemp(f"on_{size}")
            outcome = start_on_gpus(size, folder, *JOBS, script=WORK, KERASCNN_TF32="0")
            assert outcome.code == 0, outcome.output
            assert outcome.output.count("finished") == size, outcome.output
            folders[key] = folder
        return folders[key]

    return run


def test_sums(runs):
    """Those of NumPy: what is added here is a whole number, or a half."""
    found = results(runs(2), "sums")
    sizes = (1, 0, 5, 70_001, 4_100, *[3] * 125)
    assert len(found) == 4 * 3 * 2 * len(sizes)
    for key, value in found.items():
        _, case, _, i = key.split()
        first, second = (np.arange(sizes[int(i)]) % 7 + rank for rank in range(2))
        expected = (first + second, (first + second) / 2, second / 2)[int(case)]
        np.testing.assert_array_equal(value, expected, err_msg=key)


@pytest.mark.parametrize("job", NEAR)
def test_two_gpus_train_as_one(runs, job):
    one, two = results(runs(1), job), results(runs(2), job)
    assert one["losses"].std() > 1e-3  # something was learned
    np.testing.assert_allclose(two["losses"], one["losses"], rtol=NEAR[job])
    for name, value in one.items():
        distance = np.abs(two[name] - value).max()
        print(f"{job} {name}: {distance:.2g}")
        assert distance < 10 * NEAR[job], name


@pytest.mark.parametrize("job", STATEFUL)
def test_stateful_trainings_are_those_of_one_gpu(runs, job):
    """Without relu and maxima, in which a rounding decides what a whole sample adds."""
    one, two = (results(runs(size), job) for size in (1, 2))
    assert one["losses"][-1] < 0.95 * one["losses"][0]
    for name, value in one.items():
        distance = np.abs(two[name] - value).max() / np.abs(value).max()
        print(f"{name}: {distance:.2g}")
        # Processes of CPUs end up to 3e-7 apart. Each of 100 updates may round by 1.2e-7.
        assert distance < 100 * 2.0**-23, name


def test_sums_in_many_messages_are_the_same(runs):
    whole, parts = (results(runs(2), job) for job in ("net_c_at_once", "net_c_in_buckets"))
    check_equal(parts, whole, {"rtol": 1e-6, "atol": 1e-7})


@pytest.mark.parametrize("job", SHARED)
def test_state_in_parts_changes_no_bit(runs, job):
    """With two GPUs there is one addition for each element, whoever gets its result."""
    whole, parts = results(runs(2), job), results(runs(2), f"{job}_sharing")
    assert whole["losses"][-1] < 0.95 * whole["losses"][0]
    for name, value in whole.items():
        assert parts[name].tobytes() == value.tobytes(), name


@pytest.mark.parametrize("job", JOBS)
def test_both_gpus_end_with_the_same_bits(runs, job):
    first, other = results(runs(2), job), results(runs(2), job, 1)
    for name, value in first.items():
        assert value.tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("job", JOBS)
def test_two_runs_end_with_the_same_bits(runs, job):
    once, twice = results(runs(2), job), results(runs(2, again=1), job)
    for name, value in once.items():
        assert value.tobytes() == twice[name].tobytes(), name


def test_mixed_precision_learns_as_on_one_gpu(runs):
    one, two = (results(runs(size), "mixed")["losses"] for size in (1, 2))
    # Dropout draws other numbers in each process.
    assert np.mean(one[-10:]) < 0.9 * np.mean(one[:10])
    assert np.mean(two[-10:]) < 0.9 * np.mean(two[:10])


@pytest.fixture(scope="module")
def folders(two_gpus, tmp_path_factory):
    """Returns the folders with what the trainings of `test_training.py` give, by number of GPUs."""
    found = {}
    for size in (1, 2):
        own = ["own_sources_of_2"] if size == 1 else ["own_sources"]
        found[size] = tmp_path_factory.mktemp(f"as_on_cpus_{size}")
        outcome = start_on_gpus(size, found[size], *FLOAT64, *OTHERS, *own)
        assert outcome.code == 0, outcome.output
    return found


class TestAsOnCpus:
    """The trainings of `test_training.py`, in float64."""

    @pytest.mark.parametrize("job", FLOAT64)
    def test_two_train_as_one(self, folders, job):
        check_equal(results(folders[2], job), results(folders[1], job), TOLERANCE)

    def test_sources_of_different_lengths(self, folders):
        expected = results(folders[1], "own_sources_of_2")
        check_equal(results(folders[2], "own_sources"), expected, TOLERANCE)

    @pytest.mark.parametrize("op", ["reduce_to_owners", "broadcast_from_owners"])
    def test_tensors_with_owners(self, folders, op):
        # all_reduce multiplies before it adds up, and this op afterwards.
        check_owned([results(folders[2], "owned", rank) for rank in range(2)], op, rounds=True)

    def test_averages_of_rounded_gradients(self, folders):
        check_rounded([results(folders[2], "rounded_gradients", rank) for rank in range(2)])

    def test_each_process_has_its_part_of_the_state(self, folders):
        check_state_bytes([results(folders[2], "state_bytes", rank) for rank in range(2)])

    @pytest.mark.parametrize("job", ["sharded", "sharded_in_messages"])
    def test_shared_state_changes_no_bit(self, folders, job):
        found = results(folders[2], job)
        same = {name: bool(value) for name, value in found.items() if name.endswith("_same")}
        assert same and all(same.values()), same

    @pytest.mark.parametrize("job", RESUMED)
    def test_a_resumed_training_ends_with_the_same_bits(self, folders, job):
        found = results(folders[2], job)
        for name in [name for name in found if name.startswith("weight")]:
            assert found[name].tobytes() == found[f"whole_{name}"].tobytes(), name


class TestLongLoops:
    """Each epoch is one loop on the device, which the host can't look into but by its signals."""

    @pytest.fixture
    def run(self, two_gpus, tmp_path):
        def run(kind, timeout):
            mark = {"KERASCNN_TEST_DRILL": str(tmp_path)}
            seconds = {"KERASCNN_DISTRIBUTION_TIMEOUT": str(timeout)}
            outcome = start_on_gpus(2, kind, tmp_path, script=LONG_LOOPS, **mark, **seconds)
            check_nobody_left(mark)
            return outcome

        return run

    def test_a_loop_that_takes_longer_than_processes_wait(self, run):
        outcome = run("nothing", timeout=1)
        assert outcome.code == 0, outcome.output
        launches = [int(n) for n in re.findall(r"trained with (\d+) launches", outcome.output)]
        # Without loops there is one for 64 steps.
        assert len(launches) == 2 and max(launches) < 100, outcome.output
        seconds = [float(n) for n in re.findall(r"an epoch of ([\d.]+) seconds", outcome.output)]
        print(f"an epoch of {seconds} seconds")
        assert len(seconds) == 4 and min(seconds) > 1.2

    def test_a_process_that_does_not_come(self, run):
        output = run("sleeps", timeout=5).output
        assert "trained" not in output
        assert re.search("process 1 on .* (has started only|which hangs)", output), output

    def test_a_kill_in_the_middle(self, run, tmp_path):
        outcome = run("killed", timeout=60)
        killed = float((tmp_path / "second_epoch").read_text()) + 0.5
        assert outcome.code != 0 and "trained" not in outcome.output
        assert re.search("[Pp]rocess 1 on .* has ended", outcome.output), outcome.output
        assert time.time() - killed < 30


class TestFaults:
    @pytest.fixture
    def run(self, two_gpus, tmp_path):
        def run(kind, rank, timeout=10):
            mark = {"KERASCNN_TEST_DRILL": str(tmp_path)}
            seconds = {"KERASCNN_DISTRIBUTION_TIMEOUT": str(timeout)}
            plan = f"{kind}@{rank}:5"
            outcome = start_on_gpus(2, plan, tmp_path, script=SCRIPT, **mark, **seconds)
            assert outcome.code != 0
            assert "trained" not in outcome.output
            check_nobody_left(mark)
            return outcome

        return run

    @pytest.mark.parametrize("rank", [0, 1])
    def test_an_error(self, run, rank):
        output = run("raises", rank, timeout=60).output
        assert f"kerascnn: process {rank} of 2 on " in output
        assert re.search(rf"Process {rank} on .* failed with ArithmeticError: out of luck", output)

    @pytest.mark.parametrize("rank", [0, 1])
    def test_a_kill(self, run, rank):
        begun = time.monotonic()
        output = run("killed", rank, timeout=60).output
        assert re.search(rf"[Pp]rocess {rank} on .* has ended", output), output
        print(f"over after {time.monotonic() - begun:.1f} s")

    @pytest.mark.parametrize("rank", [0, 1])
    def test_a_process_that_hangs(self, run, rank):
        output = run("sleeps", rank).output
        assert re.search(rf"process {rank} on .* (has started only|which hangs)", output), output

    @pytest.mark.parametrize(
        ("kind", "message"),
        [
            ("weights", "the weight .* is different"),
            ("epochs", "the number of epochs is different"),
        ],
    )
    def test_processes_that_differ(self, run, kind, message):
        assert re.search(message, run(kind, 1, timeout=60).output)

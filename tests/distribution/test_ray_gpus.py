"""Ray gives each worker a GPU: they train as one, and go on after a kill. These need two GPUs.

`--thorough` runs the same on CPUs too.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from .conftest import QUICK_RAY, check_nobody_left, run

WORK = Path(__file__).with_name("ray_gpu_work.py")
SAVE_FREQ, KILLED_AT, STEPS = 10, 40, 100  # of ray_gpu_work.py, in two epochs
# Of 100 updates each may round by so much, as in test_gpus.py.
TOLERANCE = STEPS * 2.0**-23


@pytest.fixture(scope="module", params=["gpu", "cpu"])
def kind(request):
    """Returns what the workers compute on."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed (pip install 'kerascnn[ray]')")
    if request.param == "gpu":
        request.getfixturevalue("two_gpus")
    elif not request.config.getoption("--thorough"):
        pytest.skip("trainings by Ray on CPUs are in test_restarts.py, and here with --thorough")
    else:
        request.getfixturevalue("mpi")
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory):
    """Returns the folder with what the trainings of `ray_gpu_work.py` have left."""
    folder = tmp_path_factory.mktemp(f"ray_on_{kind}s")
    mark = {"KERASCNN_TEST_DRILL": str(folder)}
    # Nothing is chosen: it is for Ray to say what a worker computes on.
    chosen = {"KERASCNN_DEVICE": "", "KERASCNN_TF32": "0"}
    command = [sys.executable, str(WORK), kind, str(folder)]
    outcome = run(command, **QUICK_RAY, **chosen, **mark)
    assert outcome.code == 0, outcome.output
    assert "finished" in outcome.output, outcome.output
    check_nobody_left(mark)
    return folder


def trained(folder, name, rank=0):
    return dict(np.load(folder / name / f"trained.{rank}.npz"))


def check_same_bits(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].tobytes() == value.tobytes(), name


def starts(folder, name, size, begun=1):
    """Returns what each worker had in the last start of a training, of so many."""
    files = [folder / name / f"start-{begun - 1}.{rank}.json" for rank in range(size)]
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize(
    ("name", "size", "begun"), [("one", 1, 1), ("two", 2, 1), ("killed", 2, 2), ("resumed", 2, 2)]
)
def test_each_worker_has_a_gpu_of_its_own(folder, kind, name, size, begun):
    workers = starts(folder, name, size, begun)
    assert [w["devices"] for w in workers] == [[f"{kind}:{i}" for i in range(size)]] * size
    # The one that it is shown, in its own numbering.
    assert [w["device"] for w in workers] == ["cuda:0" if kind == "gpu" else "cpu"] * size
    if kind == "gpu":
        assert len({w["uuid"] for w in workers}) == len({w["shown"] for w in workers}) == size


def test_workers_that_see_all_gpus_have_one_each(folder, kind):
    workers = starts(folder, "sharing", 2)
    if kind == "gpu":
        shown = workers[0]["shown"]
        assert workers[1]["shown"] == shown and len(shown.split(",")) == 2
        assert [w["device"] for w in workers] == ["cuda:0", "cuda:1"]
        assert workers[0]["uuid"] != workers[1]["uuid"]
    check_same_bits(trained(folder, "sharing"), trained(folder, "two"))


def test_a_worker_without_a_gpu_computes_on_its_cpu(folder, kind):
    if kind == "cpu":
        pytest.skip("no worker has a GPU here")
    assert [w["device"] for w in starts(folder, "without", 1)] == ["cpu"]


def test_two_workers_train_as_one(folder):
    one, two = trained(folder, "one"), trained(folder, "two")
    assert one["losses"][-1] < 0.95 * one["losses"][0]
    for name, value in one.items():
        distance = np.abs(two[name] - value).max() / np.abs(value).max()
        print(f"{name}: {distance:.2g}")
        assert distance < TOLERANCE, name


@pytest.mark.parametrize("name", ["two", "killed", "resumed"])
def test_workers_end_with_the_same_bits(folder, name):
    check_same_bits(trained(folder, name, 1), trained(folder, name, 0))


@pytest.mark.parametrize("name", ["one", "two", "killed", "resumed"])
def test_the_last_checkpoint_has_the_trained_model(folder, name):
    weights = trained(folder, name)
    del weights["losses"]
    check_same_bits(dict(np.load(folder / name / "checkpoint.npz")), weights)


@pytest.mark.parametrize("name", ["killed", "resumed"])
def test_a_training_that_goes_on_ends_with_the_bits_of_a_whole_one(folder, name):
    check_same_bits(trained(folder, name), trained(folder, "two"))


def first_and_last_steps(folder, name):
    """Returns the steps in which each start has begun and ended."""
    begun = {}
    for line in (folder / name / "steps").read_text().splitlines():
        start, step, _ = line.split()
        begun.setdefault(int(start), []).append(int(step))
    return [(steps[0], steps[-1]) for _, steps in sorted(begun.items())]


def test_a_killed_worker_is_started_again_at_the_last_checkpoint(folder):
    assert (folder / "killed" / "failed").exists()
    (first, last), (again, end) = first_and_last_steps(folder, "killed")
    assert (first, end) == (0, STEPS - 1)
    assert last >= KILLED_AT - 1
    # Ray may not have had the last two checkpoints yet.
    assert again in (KILLED_AT - 2 * SAVE_FREQ, KILLED_AT - SAVE_FREQ, KILLED_AT)


def test_another_run_of_the_same_name_goes_on(folder):
    half = STEPS // 2
    assert first_and_last_steps(folder, "resumed") == [(0, half - 1), (half, STEPS - 1)]

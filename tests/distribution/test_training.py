"""Training in several processes gives what one process gives on the whole batches."""

from __future__ import annotations

import csv

import ml_dtypes
import numpy as np
import pytest

from .conftest import has_mpich, start, start_by_hand, trained_on_cpus
from .layouts import owners_of

# In float64: a few hundred additions in another order, and steps of optimizers that divide by small
# numbers in between.
TOLERANCE = {"rtol": 1e-9, "atol": 1e-11}
# In float32, 15 steps of Adam.
FLOAT32 = {"rtol": 2e-3, "atol": 2e-5}

# Each of them gives the same in one process and in several.
SAME = (
    "arrays",
    "metrics",
    "short_arrays",
    "weighted",
    "reductions",
    "masked",
    "outputs",
    "normalized",
    "sources",
    "own_step",
    "own_loop",
    "wide",
    "at_once",
    "optimizers",
    "gathering",
    "gathering_by_hand",
    "sharded",
    "sharded_in_messages",
    "sharded_loops",
    "shared_files",
    "digits",
)
# Those that one process with several devices can do: Python runs no step there, and they have one
# optimizer state.
LOCAL = tuple(
    job
    for job in SAME
    if job not in ("own_loop", "at_once", "digits") and not job.startswith("shar")
)
RESUMED = ("resumed", "resumed_data_set", "resumed_sharing")
ROUNDED = ("rounded", "rounded_gradients")
ALONE = (
    *ROUNDED,
    "normalized_apart",
    "noise",
    "reading",
    "callbacks",
    "messages",
    "owned",
    "state_bytes",
)
OTHERS = (*ALONE, *RESUMED)


def results(folder, job, rank=0):
    with np.load(folder / f"{job}.{rank}.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def runs(mpi, tmp_path_factory):
    """Returns a function that gives the folder with the results of so many processes."""
    folders = {}

    def run(size, again=0):
        key = size, again
        if key not in folders:
            folder = tmp_path_factory.mktemp(f"of_{size}")
            own = ["own_sources_of_2", "own_sources_of_3"] if size == 1 else ["own_sources"]
            # The second time they are started one by one and meet. Bits don't depend on it.
            begin = start_by_hand if again and has_mpich() else start
            outcome = begin(size, folder, *SAME, *OTHERS, *own)
            assert outcome.code == 0, outcome.output
            assert outcome.output.count("finished") == size, outcome.output
            folders[key] = folder
        return folders[key]

    return run


def check_equal(found, expected, tolerance=TOLERANCE):
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, err_msg=name, **tolerance)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("job", SAME)
def test_several_processes_train_as_one(runs, job, size):
    expected, found = results(runs(1), job), results(runs(size), job)
    check_equal(found, expected, FLOAT32 if job == "digits" else TOLERANCE)


@pytest.mark.parametrize("job", [*LOCAL, "rounded"])
def test_devices_of_one_process_end_with_the_same_bits(runs, several_cpus, job):
    """As two processes: shares, random streams and the order of sums are the same."""
    found, expected = trained_on_cpus(job, 2), results(runs(2), job)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.asarray(found[name]).tobytes() == value.tobytes(), name


@pytest.mark.parametrize("size", [2, 3])
def test_sources_of_different_lengths(runs, size):
    """Each step computes what all processes have then; nobody waits for one that has no more."""
    expected = results(runs(1), f"own_sources_of_{size}")
    check_equal(results(runs(size), "own_sources"), expected)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("job", [*SAME, "rounded", "own_sources", "normalized_apart", "resumed"])
def test_all_processes_end_with_the_same_bits(runs, job, size):
    first = results(runs(size), job)
    for rank in range(1, size):
        other = results(runs(size), job, rank)
        assert first.keys() == other.keys()
        for name, value in first.items():
            assert value.tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("job", [*SAME, "own_sources", "normalized_apart", "noise"])
def test_two_runs_end_with_the_same_bits(runs, job):
    for rank in range(3):
        once, twice = results(runs(3), job, rank), results(runs(3, again=1), job, rank)
        for name, value in once.items():
            assert value.tobytes() == twice[name].tobytes(), name


@pytest.mark.parametrize("size", [2, 3])
def test_each_process_reads_its_share(runs, size):
    alone = results(runs(1), "reading")
    found = [results(runs(size), "reading", rank) for rank in range(size)]
    # What the model lacks is made by the first batch of 16, which is whole in all processes.
    made, *own = (one.pop("made")[16:] for one in (alone, *found))
    check_equal(found[0], alone)
    # Two epochs of 16, 16, 16 and 2 samples. Of the last two a third process computes one that does
    # not count.
    assert len(made) == 100
    assert [len(one) for one in own] == {2: [50, 50], 3: [38, 32, 32]}[size]
    assert sorted(np.unique(np.concatenate(own))) == list(range(50))


def test_statistics_of_shares_are_not_those_of_the_batch(runs):
    """Otherwise `normalized` would say nothing about `synchronized=True`."""
    alone, several = (results(runs(size), "normalized_apart") for size in (1, 3))
    assert np.abs(alone["weight_0"] - several["weight_0"]).max() > 1e-4


def test_dropout_differs_by_process(runs):
    kept = [results(runs(3), "noise", rank)["kept"] != 0 for rank in range(3)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert 5 < (kept[a] != kept[b]).sum() < 35  # of 40, half of which differ on average
    weights = [results(runs(3), "noise", rank)["weights"].tobytes() for rank in range(3)]
    assert len(set(weights)) == 1


@pytest.mark.parametrize("job", RESUMED)
def test_a_resumed_training_ends_with_the_same_bits(runs, job):
    for size in (1, 3):
        found = results(runs(size), job)
        assert not found["left"]  # the file of the state is removed in the end
        for name in [name for name in found if name.startswith("weight")]:
            assert found[name].tobytes() == found[f"whole_{name}"].tobytes(), name
        np.testing.assert_array_equal(found["log_loss"], found["whole_log_loss"])


KINDS = ("", "_gathering", "_sharing")  # of optimizers


@pytest.mark.parametrize(("before", "after"), [(3, 2), (1, 3), (2, 1)])
def test_another_number_of_processes_goes_on(mpi, tmp_path, before, after):
    found = {}
    # Where nothing is left of an earlier training, this one begins anew.
    for name, jobs in {
        "whole": [(1, "ended")],
        "parts": [(before, "begun"), (after, "ended")],
    }.items():
        for size, job in jobs:
            outcome = start(size, tmp_path, *(f"{job}{kind}" for kind in KINDS))
            assert outcome.code == 0, outcome.output
            for folder in ("moving", "gathering", "sharing"):
                assert (tmp_path / folder).exists() == (job == "begun")
        found[name] = [results(tmp_path, f"ended{kind}") for kind in KINDS]
    for parts, whole in zip(found["parts"], found["whole"], strict=True):
        check_equal(parts, whole)


@pytest.mark.parametrize("size", [2, 3])
def test_gathered_gradients_are_summed_once(runs, size):
    """Of 4, then 8 and again 8 steps those have a message that update the weights."""
    found = results(runs(size), "messages")
    for every in (2, 4, 8):
        updates = np.diff(np.array([0, 4, 12, 20]) // every)
        np.testing.assert_array_equal(found[f"every_{every}"], updates)
    np.testing.assert_array_equal(found["every_None"], [4, 8, 8])


def test_hooks_and_files(runs):
    alone = results(runs(1), "callbacks")
    for rank in range(3):
        found = results(runs(3), "callbacks", rank)
        # Three epochs, after which nothing had improved by 100: all processes stop.
        assert len(found["log_loss"]) == 3
        np.testing.assert_allclose(found["everywhere"], alone["everywhere"], **TOLERANCE)
        assert found["only_first"] == (3 if rank == 0 else 0)
    files = str(results(runs(3), "callbacks")["files"]).split("|")
    assert [name for name in files if name.endswith("csv")] == ["log-0.csv"]
    assert len([name for name in files if name.endswith(".weights.h5")]) == 4
    with (runs(3) / "callbacks-3" / "log-0.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = results(runs(3), "callbacks")["log_loss"]
    assert [float(row["loss"]) for row in rows] == found.tolist()


@pytest.mark.parametrize("size", [2, 3])
def test_shared_state_changes_no_bit(runs, size):
    found = results(runs(size), "sharded")
    assert [found[f"{name}_same"] for name in ("adam", "scaled")] == [True] * 2
    # A process to which no weight of a message belongs takes part in it, too.
    assert results(runs(size), "sharded_in_messages")["sgd_same"]


@pytest.mark.parametrize("size", [2, 3])
def test_averages_of_rounded_gradients(runs, size):
    check_rounded([results(runs(size), "rounded_gradients", rank) for rank in range(size)])


def check_rounded(every):
    """They are averages of numbers of 8 bits, rounded once: NumPy's, or one of its neighbours.

    A third of a sum may be rounded before, in float32, so that its neighbour is as near.
    """
    assert len(every[0]) == 3 * 4
    for i in range(3):
        given = [one[f"given {i}"].astype(ml_dtypes.bfloat16).astype("float64") for one in every]
        assert not np.array_equal(given[0], every[0][f"given {i}"])
        mean = np.mean(given, axis=0)
        for way in ("at_once", "compiled", "sharing"):
            for one in every:
                found = one[f"{way} {i}"]
                np.testing.assert_array_equal(found.astype(ml_dtypes.bfloat16), found)
                assert (np.abs(found - mean) <= 2.0**-8 * (1 + 1e-6) * np.abs(mean)).all(), way


def test_rounding_gradients_changes_little(runs):
    """The trainings are other ones, the nearer the more bits there are."""
    found = results(runs(2), "rounded")
    names = [key.removeprefix("None ") for key in found if key.startswith("None weight")]
    largest = max(np.abs(found[f"None {name}"]).max() for name in names)
    # Each of nine updates is off by two roundings, which change what later ones start from.
    for dtype, roundoff in (("bfloat16", 2.0**-9), ("float16", 2.0**-12)):
        changes = [np.abs(found[f"{dtype} {name}"] - found[f"None {name}"]).max() for name in names]
        assert 0 < max(changes) < 100 * roundoff * largest, dtype


@pytest.mark.parametrize("size", [2, 3])
def test_each_process_has_its_part_of_the_state(runs, size):
    check_state_bytes([results(runs(size), "state_bytes", rank) for rank in range(size)])


def check_state_bytes(every):
    """Six layers of 64 x 64 weights and 64 biases: as many kernels for each process."""
    own, whole = [int(one["own"]) for one in every], int(every[0]["all"])
    assert sum(own) == whole
    assert max(own) <= whole / len(every) + 2 * 2 * 64 * 8


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("op", ["reduce_to_owners", "broadcast_from_owners"])
def test_tensors_with_owners(runs, op, size):
    check_owned([results(runs(size), "owned", rank) for rank in range(size)], op)


ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53, "bfloat16": 2.0**-8}


def check_owned(every, op, rounds=False):
    """Sums are those of all_reduce; processes that read no result take part, too.

    With `rounds` both multiply and add up in another order: each of the two rounds a sum of two by
    a roundoff of what is added, twice.
    """
    size = len(every)
    for dtype, roundoff in ROUNDOFF.items():
        for case, owners in owners_of(8, size).items():
            for rank, found in enumerate(every):
                for i, owner in enumerate(owners):
                    given = [one[f"{dtype} given {i}"] for one in every]
                    expected, error = given[owner if op[0] == "b" else rank], 0.0
                    if op[0] == "r" and rank == owner:
                        expected = found[f"{dtype} sum {i}"]
                        error = 4 * roundoff * np.abs(given).sum(0) if rounds else 0.0
                    for way in ("", "_program") if rank == size - 1 else ("",):
                        name = f"{dtype} {op}_{case}{way} {i}"
                        assert (np.abs(found[name] - expected) <= error).all(), name

"""What the rows of a recording say about kernels that wait, overlap or lie within each other."""

import math

import numpy as np
import pytest

import kerascnn as keras
from kerascnn.profiler import profile
from kerascnn.profiler.events import END, TRACK, Recording, rows_of
from kerascnn.profiler.machine import Machine

CUDA = "cuda:0"


def recording(events, device=CUDA, calls=None):
    """A recording of (track, start, end), each of a call and a kernel of its own.

    `calls` may say which call each event belongs to.
    """
    which = list(range(len(events))) if calls is None else calls
    infos = [
        {
            "phase": "forward",
            "layer": f"layer_{number}",
            "op": "relu",
            "kernel": "kerascnn map",
            "dtype": "float32",
            "device": device,
            "flop": 10 + number,
            "bytes": 100 + number,
            "memory_bytes": 0,
        }
        for number in range(max(which) + 1)
    ]
    rows = [
        [call, kernel, track, start, end]
        for kernel, (call, (track, start, end)) in enumerate(zip(which, events, strict=True))
    ]
    table = np.array(rows, np.int64)
    table = table[np.argsort(table[:, 3], kind="stable")]
    names = [f"kerascnn::kernel_{number}" for number in range(len(events))]
    return Recording(infos, names, table, 0, 1.0)


def numbers(record, name):
    """Returns a number of each event's row, in nanoseconds and in the order of the events."""
    rows = {row["kernel"]: row[name] for row in rows_of(record, 1)}
    return [rows[f"kernel_{i}"] * 1e3 for i in range(len(rows))]


def test_a_kernel_that_starts_early_counts_from_the_end_of_the_one_before():
    record = recording([(7, 0, 100), (7, 10, 104), (7, 101, 130)])
    assert numbers(record, "time_us") == pytest.approx([100, 94, 29])
    assert numbers(record, "busy_us") == pytest.approx([100, 4, 26])


def test_kernels_of_several_streams_share_the_time():
    record = recording([(7, 0, 100), (3, 20, 60)])
    assert numbers(record, "busy_us") == pytest.approx([80, 20])
    # The second waits until 100 for the first of its own stream, then shares 20 with the third.
    record = recording([(7, 0, 100), (7, 30, 140), (3, 120, 140)])
    assert numbers(record, "busy_us") == pytest.approx([100, 30, 10])


def test_a_kernel_within_the_one_before_has_no_time_of_its_own(monkeypatch):
    # The third waits for the first, which ends later than the second.
    record = recording([(7, 0, 100), (7, 10, 50), (7, 20, 130)])
    assert numbers(record, "busy_us") == pytest.approx([100, 0, 30])

    machine = Machine(CUDA, {1000: 1e9}, {("float32", False): 1e9, ("float32", True): 1e9})
    monkeypatch.setattr(profile, "measure_machine", lambda device: machine)
    shown = profile.Profile()
    shown._take(record)
    assert shown.rows[1]["busy_us"] == 0
    assert shown.rows[1]["compute_share"] == shown.rows[1]["bandwidth_share"] == 0
    assert shown.rows[0]["compute_share"] == pytest.approx(10 / 100e-9 / 1e9)
    assert all(math.isfinite(row[key]) for row in shown.rows for key in ("busy_us", "gap_us"))
    for by in ("kernel", "layer", "phase"):
        assert shown.table(by).row_count == (1 if by == "phase" else 3)


def test_what_an_op_on_a_cpu_calls_shares_its_time():
    # No kernel of a CPU waits for another: this one was called by a Python function of a custom op.
    record = recording([(0, 0, 100), (0, 40, 60)], device="cpu")
    assert numbers(record, "busy_us") == pytest.approx([90, 10])


def test_a_call_s_work_belongs_to_the_kernel_that_works_longest():
    # The second kernel of the call waits for the first longer than that one takes.
    record = recording([(7, 50, 100), (7, 45, 50), (7, 60, 115)], calls=[1, 0, 1])
    rows = {row["kernel"]: row for row in rows_of(record, 1)}
    assert rows["kernel_2"]["time_us"] > rows["kernel_0"]["time_us"]
    assert [rows[f"kernel_{i}"]["flop"] for i in range(3)] == [11, 10, 0]
    assert [rows[f"kernel_{i}"]["bytes"] for i in range(3)] == [101, 100, 0]


@pytest.mark.parametrize("tracks", [1, 2, 5])
def test_busy_time_is_that_in_which_anything_runs(rng, tracks):
    count, length = 40, 400
    starts = rng.integers(0, length - 100, count)
    ends = starts + rng.integers(1, 40, count)
    track = rng.integers(0, tracks, count)
    record = recording(list(zip(track.tolist(), starts.tolist(), ends.tolist(), strict=True)))

    # Which kernels work in each nanosecond: those that run and wait for no other of their stream.
    working = np.zeros((count, length), bool)
    reached = np.zeros(tracks, np.int64)
    for i in np.argsort(starts, kind="stable"):
        working[i, max(starts[i], reached[track[i]]) : ends[i]] = True
        reached[track[i]] = max(reached[track[i]], ends[i])
    expected = (working / np.maximum(working.sum(0), 1)).sum(1)
    found = numbers(record, "busy_us")
    assert found == pytest.approx(expected.tolist(), abs=1e-6)

    runs = np.zeros(length, bool)
    for start, end in zip(starts, ends, strict=True):
        runs[start:end] = True
    assert sum(found) == pytest.approx(runs.sum())


def test_kernels_of_a_gpu_s_stream_end_one_after_the_other(rng, cuda_device):
    """So those that overlap wait: kernels that work side by side are in streams of their own."""
    with keras.device(cuda_device):
        x = keras.Input((16, 16, 8))
        # The branches, and the gradients of their weights, can run side by side.
        branches = [keras.layers.Conv2D(16, size, padding="same")(x) for size in (1, 3, 5)]
        y = keras.layers.GlobalAveragePooling2D()(keras.layers.Add()(branches))
        model = keras.Model(x, keras.layers.Dense(4)(y))
        model.compile("adam", "mse")
        images = rng.standard_normal((64, 16, 16, 8)).astype("float32")
        found = model.profile(images, np.zeros((64, 4), "float32"), batch_size=32, steps=2)
    events = found.recording.events
    assert len(events) > 20
    for track in np.unique(events[:, TRACK]):
        ends = events[events[:, TRACK] == track, END]
        assert (np.diff(ends) > 0).all()

"""The sums of `all_reduce`, with an engine that plays the other processes within this one."""

from __future__ import annotations

import ctypes
import math

import ml_dtypes
import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core
from kerascnn.distribution import processes, replicas
from kerascnn.tracing import Trace

pytestmark = pytest.mark.usefixtures("on_cpu")

DTYPES = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
}


def bytes_at(address, count):
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address))


class Engine:
    """Plays `size` processes: the messages of the others are `others`, in the order of calls."""

    def __init__(self, rank, size, others=None):
        self.rank, self.size = rank, size
        self.others = [] if others is None else others  # for each call a list of arrays, by process
        self.calls = []
        self.sums = None
        _core.set_collectives("a test", rank, size, self.exchange, self.gather)

    def message(self, number, rank, own):
        if rank == self.rank or not self.others:
            return own
        return self.others[number][rank].reshape(-1).view(np.uint8)

    def gather(self, send, receive, block):
        own = bytes_at(send, block).copy()
        if self.sums is None:
            self.calls.append(own)
            blocks = [self.message(len(self.calls) - 1, i, own) for i in range(self.size)]
        else:  # the second half of a long message: the sums of all parts
            blocks, self.sums = [*self.sums], None
            blocks[self.rank] = own
        bytes_at(receive, block * self.size)[:] = np.concatenate(blocks)

    def exchange(self, send, receive, block):
        own = bytes_at(send, block * self.size).copy()
        self.calls.append(own)
        number = len(self.calls) - 1
        whole = []
        for rank in range(self.size):
            message = self.message(number, rank, own)
            whole.append(np.concatenate([message, np.zeros(own.size - message.size, np.uint8)]))
        parts = [message.reshape(self.size, block) for message in whole]
        bytes_at(receive, block * self.size)[:] = np.concatenate([p[self.rank] for p in parts])
        self.sums = [self.sum_of([p[i] for p in parts]) for i in range(self.size)]

    def sum_of(self, parts):
        total = in_order([part.view(self.dtype) for part in parts], self.factor)
        return total.view(np.uint8)


def in_order(arrays, factor=1.0):
    """((x0 + x1) + x2) + ..., in float32 or wider, rounded once."""
    wide = np.float64 if arrays[0].dtype == np.float64 else np.float32
    total = arrays[0].astype(wide)
    for array in arrays[1:]:
        total = total + array.astype(wide)
    return (total * wide(factor)).astype(arrays[0].dtype)


@pytest.fixture(autouse=True)
def alone_afterwards():
    yield
    _core.clear_collectives()
    replicas.activate(None)


def all_reduce(tensors, processes, scale=1.0, factor=1.0):
    attributes = {"processes": processes, "scale": scale, "factor": factor}
    return _core.apply("all_reduce", tensors, attributes)


def tensor(array):
    return _core.from_numpy(array, "cpu")


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("size", [7, 40_001])  # in one message to all, and in parts
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_are_taken_in_the_order_of_the_processes(rng, dtype, size, rank):
    arrays = [(rng.standard_normal(size) * 10.0**i).astype(DTYPES[dtype]) for i in (0, 2, -1)]
    engine = Engine(rank, 3, [arrays])
    engine.dtype, engine.factor = DTYPES[dtype], 0.75
    (found,) = all_reduce([tensor(arrays[rank])], 3, factor=0.75)
    assert found.numpy().tobytes() == in_order(arrays, 0.75).tobytes()
    assert len(engine.calls) == 1


def test_the_order_is_one_of_several_that_differ(rng):
    """Otherwise the test before says nothing."""
    a, b, c = (rng.standard_normal(1000).astype(np.float32) for _ in range(3))
    assert (in_order([a, b, c]) != in_order([c, b, a])).any()


def test_all_tensors_go_in_one_message(rng):
    shapes = [(3, 2), (), (0, 4), (5,)]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    engine = Engine(1, 2)
    found = all_reduce([tensor(a) for a in arrays], 2)
    assert [f.shape for f in found] == shapes
    for array, sum_ in zip(arrays, found, strict=True):
        np.testing.assert_array_equal(sum_.numpy(), array + array)
    assert len(engine.calls) == 1


def test_a_share_without_samples_gives_zeros_whatever_it_has():
    engine = Engine(0, 2, [[None, np.ones(2, np.float32)]])
    (found,) = all_reduce([tensor(np.array([math.nan, math.inf], np.float32))], 2, scale=0.0)
    assert found.numpy().tolist() == [1.0, 1.0]
    assert not engine.calls[0].any()


def test_gradients_are_added_up_too(rng):
    x = tensor(rng.standard_normal(4).astype(np.float32))
    weight = tensor(rng.standard_normal(4).astype(np.float32))
    engine = Engine(0, 2)  # the other process has the same numbers
    tape = _core.Tape(False, True)
    tape.start()
    tape.watch(x)
    loss = _core.apply(
        "reduce_sum",
        [all_reduce([x], 2, scale=0.5, factor=3.0)[0] * weight],
        {"axes": [], "keepdims": False},
    )[0]
    tape.stop()
    (gradient,) = tape.gradients([loss], [None], [x])
    # Each process' loss depends on x, by 3 * 0.5; there are two of them.
    np.testing.assert_allclose(gradient.numpy(), 2 * 1.5 * weight.numpy(), rtol=1e-6)
    assert len(engine.calls) == 2


def test_another_number_of_processes():
    x = tensor(np.ones(2, np.float32))
    with pytest.raises(keras.DeviceError, match="is for 3 processes, but this one is one of 1"):
        all_reduce([x], 3)
    Engine(0, 2)
    with pytest.raises(keras.DeviceError, match="is for 3 processes, but this one is one of 2"):
        all_reduce([x], 3)


def test_an_error_of_the_engine_reaches_the_caller():
    engine = Engine(0, 2)
    engine.message = None
    with pytest.raises(TypeError, match="not callable"):
        all_reduce([tensor(np.ones(2, np.float32))], 2)
    with Trace("cpu") as trace:
        x = trace.graph.input("x", [2], "float32")
        y = all_reduce_in(trace, [x])
    program = _core.Program.compile(trace.graph, y, "cpu")
    with pytest.raises(TypeError, match="not callable"):
        program.run([keras.ops.ones((2,))])


def all_reduce_in(trace, values):
    attributes = {"processes": 2, "scale": 1.0, "factor": 1.0}
    return trace.graph.apply("all_reduce", values, attributes)


@pytest.mark.parametrize("shuffled", [False, True])
def test_programs_keep_the_order_of_calls(monkeypatch, shuffled):
    """Nothing but their order connects these calls; the last one is needed first."""
    if shuffled:
        monkeypatch.setenv("KERASCNN_SHUFFLE_KERNELS", "3")
    engine = Engine(0, 2)
    with Trace("cpu") as trace:
        inputs = [trace.graph.input(f"x{i}", [1], "float32") for i in range(8)]
        sums = [all_reduce_in(trace, [keras.ops.exp(x)])[0] for x in inputs]
        total = sums[-1]
        for one in reversed(sums[:-1]):
            total = keras.ops.tanh(total * one)
    program = _core.Program.compile(trace.graph, [total], "cpu")
    values = np.linspace(-1.0, 1.0, 8, dtype=np.float32)
    for _ in range(5):
        engine.calls.clear()
        program.run([keras.ops.convert_to_tensor(values[i : i + 1]) for i in range(8)])
        sent = [float(call.view(np.float32)[0]) for call in engine.calls]
        np.testing.assert_allclose(sent, np.exp(values), rtol=1e-6)


def test_equal_calls_are_not_merged():
    """Processes count calls: merging those that are equal in one process only would be fatal."""
    engine = Engine(0, 2)
    with Trace("cpu") as trace:
        x = trace.graph.input("x", [1], "float32")
        outputs = [all_reduce_in(trace, [x])[0] for _ in range(2)]
    _core.Program.compile(trace.graph, outputs, "cpu").run([keras.ops.ones((1,))])
    assert len(engine.calls) == 2


def test_moments_of_all_layers_go_in_one_message():
    """In a program, where what reads the first of them comes behind the last of them."""
    engine = Engine(0, 2)
    replicas.activate(replicas.Replicas(engine))
    with Trace("cpu") as trace:
        x = trace.graph.input("x", [3], "float32")
        outputs = []
        for _ in range(4):
            x = keras.ops.exp(-x)
            mean, variance = replicas.averaged([x, keras.ops.square(x)])
            outputs += [mean + 1.0, keras.ops.sqrt(variance)]
    program = _core.Program.compile(trace.graph, outputs, "cpu")
    values = np.array([-1.0, 0.0, 2.0], np.float32)
    program.run([keras.ops.convert_to_tensor(values)])
    assert [len(call) for call in engine.calls] == [4 * 2 * 3 * 4]
    for i, output in enumerate(program.outputs()):
        if i % 2 == 0:
            values = np.exp(-values)
        # Both processes have the same: the mean is the value, and rounding is that of exp and sqrt.
        np.testing.assert_allclose(output.numpy(), values + 1 if i % 2 == 0 else values, rtol=1e-6)


def test_gradients_go_in_buckets(monkeypatch):
    engine = Engine(0, 2)
    replicas.activate(replicas.Replicas(engine))
    monkeypatch.setattr(replicas, "_BUCKET_BYTES", 64)
    gradients = [np.ones(n, np.float32) for n in (10, 6, 1, 40, 3)]
    gradients += [None, np.ones(4, np.float64)]
    means = replicas.mean_gradients(gradients)
    # The last ones first, as in the backward pass; each message ends where it is large enough.
    assert [len(call) for call in engine.calls] == [32, 172, 68]
    assert means[5] is None
    for mean in means[:5]:
        np.testing.assert_array_equal(mean.numpy(), np.ones(mean.shape, np.float32))


@pytest.mark.parametrize(
    ("kinds", "sizes", "expected"),
    [
        # Net C of the benchmarks: the kernel of the dense layer ends a message.
        ("gpu", [288, 32, 18432, 64, 401408, 128, 1280, 10], [[7, 6, 5, 4], [3, 2, 1, 0]]),
        ("cpu", [288, 32, 18432, 64, 401408, 128, 1280, 10], [[7, 6, 5, 4, 3, 2, 1, 0]]),
        ("gpu", [100, 200, 300], [[2, 1, 0]]),
        ("gpu", [1 << 25, 1 << 23, 1 << 23], [[2], [1], [0]]),
        # Each message has half of what is left, and none is below 1 MB but the last.
        ("gpu", [1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 21], [[4], [3], [2], [1], [0]]),
    ],
)
def test_messages_leave_little_for_the_end(monkeypatch, kinds, sizes, expected):
    monkeypatch.setattr(processes, "device_kind", lambda: kinds)
    gradients = [keras.KerasTensor((size,), "float32") for size in sizes]
    assert list(replicas.buckets(gradients)) == expected


def test_rows_cover_a_batch():
    for size in (1, 2, 3, 5):
        parts = [replicas.Replicas(_Rank(rank, size)) for rank in range(size)]
        for total in (1, 2, 4, 5, 17):
            rows = np.concatenate([np.arange(total)[part.rows(total)] for part in parts])
            assert rows.tolist() == list(range(total))
            shares = [part.share(total) for part in parts]
            assert sum(share.local for share in shares) == total
            assert max(s.local for s in shares) - min(s.local for s in shares) <= 1
            assert math.isclose(sum(share.weight for share in shares), size)


class _Rank:
    def __init__(self, rank, size):
        self.rank, self.size = rank, size

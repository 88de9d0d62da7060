"""Copies from the host beside the device's work bring the right rows in the right order."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kerascnn import _core


def memory_for(device, rows, columns=4, dtype="float32"):
    """Returns memory on the device, and memory on the host to upload it from."""
    target = _core.zeros([rows, columns], dtype, device)
    return target, _core.empty_for_upload([rows, columns], dtype, device)


def test_rows_arrive_and_no_others(device):
    rng = np.random.default_rng(0)
    target, source = memory_for(device, 200, 37)
    host, expected = source.numpy(), np.zeros((200, 37), "float32")
    upload = _core.Upload(device)
    assert upload.sent()
    for _ in range(50):
        upload.wait()
        first, count = np.sort(rng.integers(0, 201, 2)) - [0, 0]
        host[...] = rng.normal(size=host.shape)
        upload.send([target], [source], int(first), int(count - first))
        expected[first:count] = host[first:count]
        # The read takes its turn in the stream.
        np.testing.assert_array_equal(target.numpy(), expected)
    upload.wait()
    assert upload.sent()


def test_several_arrays_go_together(device):
    pairs = [memory_for(device, 6, 5), memory_for(device, 6, 1, "int32")]
    for _, source in pairs:
        source.numpy()[...] = np.arange(source.size).reshape(source.shape)
    upload = _core.Upload(device)
    upload.send([target for target, _ in pairs], [source for _, source in pairs], 2, 3)
    for target, source in pairs:
        expected = source.numpy().copy()
        upload.wait()
        expected[:2], expected[5:] = 0, 0
        np.testing.assert_array_equal(target.numpy(), expected)


def summing_program(device, shape):
    """Compiles a program whose every step adds the sum of its input to a variable."""
    graph = _core.Graph()
    x = graph.input("x", list(shape), "float32")
    total = _core.Variable("total", _core.zeros([], "float32", device))
    (part,) = graph.apply("reduce_sum", [x], {"axes": [0, 1], "keepdims": False})
    (after,) = graph.apply("add", [graph.read(total), part], {})
    graph.assign(total, after)
    return _core.Program.compile(graph, [], device), total


def test_work_that_was_marked_is_not_overtaken(device):
    """An upload waits for the steps that still read, and later steps wait for the upload."""
    rows = 512
    target, source = memory_for(device, rows)
    program, total = summing_program(device, target.shape)
    upload, expected = _core.Upload(device), 0.0
    for turn in range(40):
        upload.wait()
        source.numpy()[...] = turn % 5
        upload.send([target], [source], 0, rows)
        steps = 1 + 7 * (turn % 4)
        program.run([target], steps)
        upload.mark_used()
        expected += steps * rows * 4 * (turn % 5)
    # The numbers are integers below 2**24, which float32 holds exactly.
    assert float(total.value.numpy()) == expected


def test_a_fence_passes_behind_the_work_before_it(device):
    fence = _core.Fence(device)
    assert fence.passed()
    target, _ = memory_for(device, 1024)
    program, total = summing_program(device, target.shape)
    program.run([target], 100)
    fence.record()
    fence.wait()
    assert fence.passed()
    assert float(total.value.numpy()) == 0


def test_memory_of_copies_may_be_let_go_of(device):
    target, source = memory_for(device, 64)
    source.numpy()[...] = 3
    upload = _core.Upload(device)
    upload.send([target], [source], 0, 64)
    del source
    _core.empty_for_upload([64, 4], "float32", device).numpy()[...] = 7
    del upload
    np.testing.assert_array_equal(target.numpy(), np.full((64, 4), 3))


def test_what_does_not_fit_is_refused(device):
    target, source = memory_for(device, 8)
    upload = _core.Upload(device)
    with pytest.raises(ValueError, match="rows 5 to 9 of float32"):
        upload.send([target], [source], 5, 4)
    with pytest.raises(ValueError, match="1 targets for 2 sources"):
        upload.send([target], [source, source], 0, 1)
    with pytest.raises(ValueError, match="with the same dtypes and shapes"):
        upload.send([target], [memory_for(device, 7)[1]], 0, 1)


def test_pieces_of_memory_and_clearing_it(device):
    memory = _core.zeros([64], "uint8", device)
    piece = memory.piece([2, 3], "int32", 16)
    variable = _core.Variable("v", _core.from_numpy(np.full((2, 3), -1, "int32"), device))
    assert piece.dtype == "int32" and piece.shape == (2, 3) and piece.device == device
    assert not piece.numpy().any()
    variable.value.fill_zero()
    assert not variable.value.numpy().any()
    with pytest.raises(ValueError, match=r"piece: int32 \(2, 3\) from byte 48"):
        memory.piece([2, 3], "int32", 48)


def test_waiting_for_a_gpu_leaves_the_core_to_others(cuda_device):
    target, _ = memory_for(cuda_device, 4096, 1024)
    program, _ = summing_program(cuda_device, target.shape)
    program.run([target], 100)
    _core.synchronize(cuda_device)
    steps, wall, cpu = 1000, 0.0, 0.0
    while wall < 0.3:
        begun = time.perf_counter(), time.process_time()
        program.run([target], steps)
        _core.synchronize(cuda_device)
        wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
        steps *= 2
    # A busy wait would use all of it; other threads of the process may use a little.
    assert cpu < 0.3 * wall


def test_copies_read_their_source_at_once(device, rng):
    """Copies read their source at once, whatever the device still has to do.

    The sizes lie below and above the limit for copies without waiting, aligned or not, and together
    they exceed the staging memory.
    """
    source = np.empty((5 << 18) + 1, "float32")
    for sizes in ([1, 3, 63, 64, 65], [1000] * 700, [1 << 18, 7, (1 << 20) - 1, 1 << 20, 5 << 18]):
        busy = _core.zeros([700, 700], "float32", device)
        for _ in range(20):
            (busy,) = _core.apply("exp", [busy])
        copies = []
        for i, size in enumerate(sizes):
            offset = int(rng.integers(0, 2))
            array = source[: size + offset][offset:]
            array[...] = i + 1
            array[-1] = -1
            copies.append(_core.from_numpy(array, device))
            array[...] = 0
        for i, (size, copy) in enumerate(zip(sizes, copies, strict=True)):
            values = copy.numpy()
            assert values.shape == (size,)
            assert (values[:-1] == i + 1).all()
            assert values[-1] == -1


def test_threads_copy_at_the_same_time(device):
    def copy(number):
        for i in range(300):
            value = number * 1000 + i
            array = np.full((i * 37) % 5000 + 1, value, "int32")
            tensor = _core.from_numpy(array, device)
            array[...] = -1
            assert (tensor.numpy() == value).all()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(copy, range(4)))

"""Memory is shared on a GPU, with others' streams, and without a way over the host.

Work that takes long provokes the waits: without one, the old content would be read.
"""

import ctypes
import gc
import os
import time

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

SIDE = 4096  # the addition of matrices of this size takes long enough
ROUNDS = 30


@pytest.fixture
def torch(cuda_device):
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return module


@pytest.fixture
def cupy(cuda_device):
    return pytest.importorskip("cupy")


@pytest.fixture
def jax(cuda_device):
    module = pytest.importorskip("jax")
    try:
        module.devices("cuda")
    except RuntimeError as error:
        pytest.skip(f"this JAX has no CUDA: {str(error).splitlines()[0]}")
    return module


def ours_after_work(device):
    """Returns a tensor that will hold ROUNDS; its last addition is enqueued and has not run yet."""
    x = _core.zeros([SIDE, SIDE], "float32", device)
    one = _core.from_numpy(np.float32(1), device)
    for _ in range(ROUNDS):
        (x,) = _core.apply("add", [x, one])
    return x


def test_pytorch_streams_are_waited_for(torch, cuda_device):
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for _ in range(5):
                x = torch.zeros(SIDE, SIDE, device="cuda")
                for _ in range(ROUNDS):
                    x = x + 1
                ours = keras.from_dlpack(x)
                doubled = ours + ours
                back = torch.from_dlpack(doubled)
                wrong = (back != 2 * ROUNDS).sum()
                del ours, doubled, back, x  # the next round uses this memory again
                assert wrong.item() == 0


def test_our_work_is_waited_for_by_pytorch(torch, cuda_device):
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for _ in range(5):
                theirs = torch.from_dlpack(ours_after_work(cuda_device))
                wrong = (theirs != ROUNDS).sum()
                del theirs
                # The memory is ours again and is written to as soon as PyTorch gives it back.
                _core.zeros([SIDE, SIDE], "float32", cuda_device)
                assert wrong.item() == 0


def test_memory_given_back_is_not_used_before_the_consumer_is_done(torch, cuda_device):
    stream = torch.cuda.Stream()
    for _ in range(5):
        with torch.cuda.stream(stream):
            theirs = torch.from_dlpack(ours_after_work(cuda_device))
            total = theirs
            for _ in range(ROUNDS):
                total = total + theirs
            del theirs
        spoiled = _core.zeros([SIDE, SIDE], "float32", cuda_device)
        with torch.cuda.stream(stream):
            assert (total != ROUNDS * (ROUNDS + 1)).sum().item() == 0
        del spoiled, total


def test_lent_memory_goes_back_when_our_work_is_done(torch, cuda_device):
    """It goes back no earlier, and the host does not wait: PyTorch writes to it at once."""
    freed = []

    class Lent:
        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        @property
        def __cuda_array_interface__(self):
            return self.array.__cuda_array_interface__

        def __del__(self):
            freed.append(True)

    x = torch.ones(SIDE, 8, device="cuda")
    # This plans the kernels.
    float(ops.sum(ours_after_work(cuda_device)) + ops.sum(_core.from_cuda_array(x)))
    ours = _core.from_cuda_array(Lent(x))
    for _ in range(10):
        work = ours_after_work(cuda_device)
    total = ops.sum(work) + ops.sum(ours)
    begun = time.perf_counter()
    del ours
    waited = time.perf_counter() - begun
    early = list(freed)
    assert float(total) == ROUNDS * SIDE**2 + 8 * SIDE
    _core.synchronize(cuda_device)
    assert freed == [True]
    # The work takes more than ten milliseconds.
    assert early == [] and waited < 1e-3


def test_many_small_and_large_loans_go_back(torch, cuda_device):
    for rows in (16, SIDE * 2):
        for _ in range(40):
            x = torch.full((rows, 4096), 2.0, device="cuda")
            doubled = keras.from_dlpack(x) * 2.0
            del x
            torch.zeros(rows, 4096, device="cuda")  # this gets the same memory if it is free
            assert float(ops.max(doubled)) == float(ops.min(doubled)) == 4.0


def test_without_the_wait_the_tests_above_would_fail(torch, cuda_device):
    """Stream -1 asks for no order, so the consumer reads too early at least once."""
    stream, wrong = torch.cuda.Stream(), 0
    with torch.cuda.stream(stream):
        for _ in range(20):
            capsule = ours_after_work(cuda_device).__dlpack__(stream=-1, max_version=(1, 0))
            wrong += int((torch.from_dlpack(capsule) != ROUNDS).any())
    assert wrong > 0


def test_cupy_streams_are_waited_for(cupy, cuda_device):
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            for _ in range(5):
                x = cupy.zeros((SIDE, SIDE), "float32")
                for _ in range(ROUNDS):
                    x = x + 1
                doubled = keras.from_dlpack(x) * 2.0
                back = cupy.from_dlpack(doubled)
                wrong = (back != 2 * ROUNDS).sum()
                del x, doubled, back
                assert int(wrong) == 0


def test_jax_is_waited_for(jax, cuda_device):
    jnp = jax.numpy
    with jax.default_device(jax.devices("cuda")[0]):
        for _ in range(5):
            x = jnp.zeros((SIDE, SIDE))
            for _ in range(ROUNDS):
                x = x + 1
            doubled = keras.from_dlpack(x) * 2.0
            back = jax.dlpack.from_dlpack(doubled)
            assert int((back != 2 * ROUNDS).sum()) == 0
            theirs = jax.dlpack.from_dlpack(ours_after_work(cuda_device))
            assert int((theirs != ROUNDS).sum()) == 0


def test_a_stream_may_be_gone_before_the_memory_is(torch, cuda_device):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        theirs = torch.from_dlpack(ours_after_work(cuda_device))
    stream.synchronize()
    del stream
    gc.collect()
    assert (theirs == ROUNDS).all().item()
    del theirs
    assert _core.zeros([2], "float32", cuda_device).tolist() == [0, 0]


# __cuda_array_interface__ -----------------------------------------------------------------------


class Described:
    """An array that tells its address only by the interface, as those of Numba do."""

    def __init__(self, array, **changes):
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **changes}


@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"],
)
@pytest.mark.parametrize("shape", [(), (3, 4), (2, 0)])
def test_the_interface_describes_tensors(dtype, shape, cuda_device, rng):
    values = rng.integers(0, 2, shape).astype(dtype)
    x = _core.from_numpy(values, cuda_device)
    interface = x.__cuda_array_interface__
    assert interface["version"] == 3 and interface["shape"] == shape
    assert np.dtype(interface["typestr"]) == np.dtype(dtype)
    assert interface["strides"] is None and interface["data"][1] is False
    assert interface["stream"] not in (None, 0) and bool(interface["data"][0]) == bool(values.size)
    again = ops.convert_to_tensor(Described(x))
    assert again.device == cuda_device and again.dtype == dtype
    np.testing.assert_array_equal(again.numpy(), values)


def test_strides_of_the_interface_are_in_bytes(cuda_device):
    x = _core.from_numpy(np.arange(24.0, dtype="float32").reshape(4, 6), cuda_device)
    whole = x.__cuda_array_interface__
    part = Described(x, shape=(2, 3), strides=(48, 8), data=(whole["data"][0] + 4, False))
    y = _core.from_cuda_array(part)
    np.testing.assert_array_equal(y.numpy(), x.numpy()[::2, 1::2])
    interface = y.__cuda_array_interface__
    assert interface["strides"] == (48, 8)
    assert interface["data"][0] == whole["data"][0] + 4


def test_what_has_no_interface(cuda_device):
    for x in (
        _core.zeros([2], "float32", "cpu"),
        _core.zeros([2], "bfloat16", cuda_device),
        keras.Variable([1.0], device_name="cpu"),
    ):
        assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="share the tensor through DLPack"):
        _core.zeros([2], "bfloat16", cuda_device).__cuda_array_interface__  # noqa: B018


def test_cupy_takes_the_interface(cupy, cuda_device):
    for _ in range(5):
        ours = ours_after_work(cuda_device)
        theirs = cupy.asarray(Described(ours))
        assert theirs.data.ptr == ours.__cuda_array_interface__["data"][0]
        assert int((theirs != ROUNDS).sum()) == 0
        side = cupy.cuda.Stream(non_blocking=True)
        with side:
            total = theirs + 1
        del theirs, ours
        spoiled = _core.zeros([SIDE, SIDE], "float32", cuda_device)
        assert int((total != ROUNDS + 1).sum()) == 0
        del spoiled, total


def test_pytorch_takes_the_interface(torch, cuda_device):
    ours = ours_after_work(cuda_device)
    theirs = torch.as_tensor(Described(ours), device="cuda")
    assert theirs.data_ptr() == ours.__cuda_array_interface__["data"][0]


def test_we_take_the_interface_of_others(cupy, torch, cuda_device):
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            for _ in range(5):
                x = cupy.zeros((SIDE, SIDE), "float32")
                for _ in range(ROUNDS):
                    x = x + 1
                ours = ops.convert_to_tensor(Described(x))
                assert pointer(ours) == x.data.ptr
                wrong = ops.sum(ops.cast(ours != float(ROUNDS), "int32"))
                del x, ours
                assert int(wrong) == 0
    y = torch.ones(3, 4, device="cuda")
    assert pointer(_core.from_cuda_array(y)) == y.data_ptr()


def pointer(tensor):
    return tensor.__cuda_array_interface__["data"][0]


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"stream": 0}, ValueError, "stream 0 is ambiguous"),
        ({"typestr": "<c8"}, TypeError, 'typestr "<c8" is not supported'),
        ({"typestr": ">f4"}, TypeError, 'typestr ">f4" is not supported'),
        ({"mask": object()}, TypeError, "with a mask"),
        ({"strides": (3,)}, ValueError, "multiples of the 4 bytes"),
        ({"strides": (4, 4)}, ValueError, "one number of bytes for each axis"),
        ({"data": (0, False)}, ValueError, "must have an address"),
    ],
)
def test_descriptions_that_make_no_sense(changes, error, text, cuda_device):
    x = _core.zeros([4], "float32", cuda_device)
    with pytest.raises(error, match=text):
        _core.from_cuda_array(Described(x, **changes))


def test_addresses_that_are_not_of_a_gpu(cuda_device):
    x = _core.zeros([4], "float32", cuda_device)
    host = ctypes.create_string_buffer(64)
    with pytest.raises(_core.DeviceError, match="not one of memory on a GPU"):
        _core.from_cuda_array(Described(x, data=(ctypes.addressof(host), False)))
    assert _core.zeros([2], "float32", cuda_device).tolist() == [0, 0]


def test_older_versions_and_read_only_memory(cuda_device):
    x = ours_after_work(cuda_device)
    fields = {k: v for k, v in x.__cuda_array_interface__.items() if k != "stream"}
    old = Described(x)
    old.__cuda_array_interface__ = {**fields, "version": 2, "data": (fields["data"][0], True)}
    y = _core.from_cuda_array(old)
    assert y.read_only and float(ops.sum(y)) == ROUNDS * SIDE**2
    with keras.GradientTape() as tape:
        tape.watch(y)
        z = y * y
        assert y.__cuda_array_interface__["data"][1] is True
    del tape, z


# Data on the GPU, and what becomes of it ----------------------------------------------------------


def test_a_pytorch_loop_around_a_model(torch, cuda_device, monkeypatch, rng):
    """The loop trains on PyTorch's tensors and hands predictions back; no data reaches the host."""
    x = torch.randn(257, 12, device="cuda")
    y = torch.randint(0, 3, (257,), device="cuda")
    with keras.device(cuda_device):
        model = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, metrics=["accuracy"])
        model.fit(x, y, batch_size=32, verbose=0)
        expected = model.predict(x.cpu().numpy(), batch_size=32, verbose=0)

        def copied(*args, **kwargs):
            raise AssertionError("data went through the host")

        for name in ("cpu", "numpy", "__array__", "tolist"):
            monkeypatch.setattr(torch.Tensor, name, copied)
        monkeypatch.setattr(_core, "from_numpy", copied)
        model.evaluate(x, y, batch_size=32, verbose=0)
        predicted = torch.from_dlpack(model.predict(x, batch_size=32, verbose=0, as_tensor=True))
        layer_output = model.layers[0](x)
        assert layer_output.device == cuda_device and predicted.device.type == "cuda"
        model.fit(x, y, batch_size=32, verbose=0)
        batches = [(x[i : i + 32], y[i : i + 32]) for i in range(0, 256, 32)]
        model.fit((b for b in batches), steps_per_epoch=8, shuffle=False, verbose=0)
        monkeypatch.undo()
        np.testing.assert_allclose(predicted.cpu().numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["cupy", "jax"])
def test_fit_on_arrays_of_other_libraries(name, request, cuda_device, rng):
    module = request.getfixturevalue(name)
    values, labels = rng.normal(size=(64, 5)).astype("float32"), rng.integers(0, 3, 64, "int32")
    if name == "cupy":
        x, y = module.asarray(values), module.asarray(labels)
    else:
        place = module.devices("cuda")[0]
        x, y = module.device_put(values, place), module.device_put(labels, place)
    results = []
    with keras.device(cuda_device):
        for given in ((values, labels), (x, y)):
            keras.utils.set_random_seed(1)
            model = keras.Sequential([keras.layers.Dense(3)])
            model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
            results.append(
                (
                    model.fit(*given, batch_size=16, verbose=0).history,
                    model.evaluate(*given, batch_size=16, verbose=0),
                )
            )
            model.predict(given[0], verbose=0)
    assert results[0] == results[1]


def test_data_on_a_gpu_for_a_model_on_the_cpu(torch, cuda_device):
    x, y = torch.randn(20, 4, device="cuda"), torch.randn(20, 1, device="cuda")
    with keras.device("cpu"):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(x, y, verbose=0)
        predicted = model.predict(x, verbose=0, as_tensor=True)
    assert predicted.device == "cpu"
    np.testing.assert_array_equal(predicted.numpy(), model.predict(x.cpu().numpy(), verbose=0))


def test_mixed_devices_are_named(cuda_device):
    a, b = _core.zeros([2], "float32", "cpu"), _core.zeros([2], "float32", cuda_device)
    with pytest.raises(_core.DeviceError, match=r"move one of them with \.to"):
        _core.apply("add", [a, b])
    with pytest.raises(_core.DeviceError, match=r"move one of them with \.to"):
        _core.apply("concatenate", [a, b], {"axis": 0})


def test_an_address_that_is_not_on_the_gpu_it_names(cuda_device):
    capsule = np.zeros(4, np.float32).__dlpack__()
    address_of = ctypes.pythonapi.PyCapsule_GetPointer
    address_of.restype, address_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    # A DLTensor begins with the address; the type of the device comes next, and CUDA's is 2.
    device_type = ctypes.c_int32.from_address(address_of(capsule, b"dltensor") + 8)
    assert device_type.value == 1
    device_type.value = 2
    with pytest.raises(BufferError, match="not one of memory on a GPU"):
        keras.from_dlpack(capsule)
    np.testing.assert_array_equal(_core.zeros([2], "float32", cuda_device).numpy(), [0, 0])

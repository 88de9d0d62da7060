"""Arrays are shared with other libraries through DLPack."""

import gc
import sys
import weakref

import numpy as np
import pytest

from kerascnn import _core

from .dtypes import DTYPES

NUMPY_DTYPES = [dtype for dtype in DTYPES if dtype != "bfloat16"]


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 0, 3)])
def test_numpy_shares_memory_both_ways(dtype, shape):
    x = np.random.default_rng(3).integers(0, 100, shape).astype(dtype)
    t = _core.from_dlpack(x)
    assert (t.shape, t.dtype, t.device) == (shape, dtype, "cpu")
    y = np.from_dlpack(t)
    assert y.dtype == x.dtype and np.array_equal(x, y)
    if x.size:
        assert address(t.numpy()) == address(x) == address(y)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda x: x.T, id="transposed"),
        pytest.param(lambda x: x[::-1, ::-2], id="negative strides"),
        pytest.param(lambda x: x[1:, 1:3], id="offset"),
        pytest.param(lambda x: x[:, None, :1], id="single axes"),
    ],
)
def test_strided_arrays_are_shared(make):
    x = make(np.arange(24.0).reshape(4, 6))
    t = _core.from_dlpack(x)
    assert address(t.numpy()) == address(x)
    assert np.array_equal(t.numpy(), x)
    assert np.array_equal(np.from_dlpack(t), x)
    assert np.array_equal(_core.apply("negative", [t])[0].numpy(), -x)


def test_unaligned_arrays_are_copied():
    x = np.frombuffer(bytearray(41), dtype="uint8")[1:].view("float64")
    x[:] = np.arange(5)
    t = _core.from_dlpack(x)
    assert t.numpy().tolist() == [0, 1, 2, 3, 4]
    assert address(t.numpy()) % 8 == 0


def test_memory_lives_as_long_as_its_users():
    class Owner(np.ndarray):
        pass

    x = np.arange(6.0).view(Owner)
    freed = []
    weakref.finalize(x, freed.append, True)
    t = _core.from_dlpack(x)
    y = np.from_dlpack(t)
    view = t.reshape((2, 3))
    del x, t
    gc.collect()
    assert not freed and y.tolist() == [0, 1, 2, 3, 4, 5]
    del y
    gc.collect()
    assert not freed and view.numpy().sum() == 15
    del view
    gc.collect()
    assert freed


def test_export_keeps_our_memory(settled_memory):
    t = _core.zeros((1000,), "float64", "cpu")
    allocated = _core.memory_stats("cpu")["allocated"]
    y = np.from_dlpack(t)
    unused = t.__dlpack__()
    del t, unused
    gc.collect()
    assert _core.memory_stats("cpu")["allocated"] == allocated and y.sum() == 0
    del y
    gc.collect()
    assert _core.memory_stats("cpu")["allocated"] == allocated - 8192


def test_importing_does_not_leak_references():
    x = np.arange(6.0)
    before = sys.getrefcount(x)
    for _ in range(10):
        _core.from_dlpack(x)
        with pytest.raises(TypeError):
            _core.from_dlpack(np.zeros(3, "complex64"))
    assert sys.getrefcount(x) == before


@pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0), (1, 1), (7, 3)])
def test_capsules_are_consumed_once(max_version):
    t = _core.from_numpy(np.arange(3), "cpu")
    capsule = t.__dlpack__(max_version=max_version)
    versioned = max_version is not None and max_version >= (1, 0)
    assert ("dltensor_versioned" in repr(capsule)) == versioned
    assert _core.from_dlpack(capsule).numpy().tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="can be used once"):
        _core.from_dlpack(capsule)


def test_producers_from_before_version_one():
    class Old:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, *, stream=None):
            return self.array.__dlpack__(stream=stream)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = np.arange(4.0)
    assert address(_core.from_dlpack(Old(x)).numpy()) == address(x)


def test_errors_of_a_producer_pass_through():
    class Broken:
        def __dlpack__(self, **kwargs):
            raise RuntimeError("no data today")

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(RuntimeError, match="no data today"):
        _core.from_dlpack(Broken())


def test_read_only_arrays_stay_read_only():
    x = np.arange(4.0)
    x.flags.writeable = False
    t = _core.from_dlpack(x)
    assert t.read_only and not t.numpy().flags.writeable
    assert not np.from_dlpack(t).flags.writeable
    assert t.reshape((2, 2)).read_only
    with pytest.raises(BufferError, match="read-only"):
        t.__dlpack__()
    assert np.from_dlpack(t, copy=True).flags.writeable
    assert _core.apply("negative", [t])[0].numpy().tolist() == [0, -1, -2, -3]


def test_copies_are_made_when_asked_for():
    t = _core.from_numpy(np.arange(4.0), "cpu")
    assert address(np.from_dlpack(t, copy=True)) != address(t.numpy())
    assert address(np.from_dlpack(t, copy=False)) == address(t.numpy())


def test_requests_that_cannot_be_met():
    t = _core.zeros((2,), "float32", "cpu")
    assert t.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match=r"\(2, 0\)"):
        t.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream 5"):
        t.__dlpack__(stream=5)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ([1, 2], AttributeError, "__dlpack_device__, got list"),
        (np.zeros(2, "complex128"), TypeError, "complex128 is not supported"),
        (np.zeros(2, "uint32"), TypeError, "uint32 is not supported"),
        (np.array(["x"]), BufferError, "DLPack"),
        (np.array([None]), BufferError, "DLPack"),
    ],
)
def test_what_cannot_be_imported(value, error, text):
    with pytest.raises(error, match=text):
        _core.from_dlpack(value)


def test_devices_that_are_not_known():
    class Elsewhere:
        def __dlpack__(self, **kwargs):
            raise AssertionError("must not be asked")

        def __dlpack_device__(self):
            return (8, 0)

    with pytest.raises(BufferError, match="device type 8"):
        _core.from_dlpack(Elsewhere())


@pytest.mark.parametrize("dtype", [*NUMPY_DTYPES, "bfloat16"])
def test_torch_shares_memory_both_ways(dtype):
    torch = pytest.importorskip("torch")
    x = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype))
    t = _core.from_dlpack(x)
    assert t.dtype == dtype and t.shape == (3, 4)
    y = torch.from_dlpack(t)
    assert y.data_ptr() == x.data_ptr() and y.dtype == x.dtype
    assert torch.equal(x, y)
    z = torch.from_dlpack(_core.from_dlpack(x.T))
    assert z.data_ptr() == x.data_ptr() and torch.equal(z, x.T)


def test_torch_scalars_and_empty_tensors():
    torch = pytest.importorskip("torch")
    assert _core.from_dlpack(torch.tensor(2.5)).numpy() == 2.5
    t = _core.from_dlpack(torch.zeros(0, 3))
    assert t.shape == (0, 3) and torch.from_dlpack(t).shape == (0, 3)


def test_torch_on_a_gpu(device):
    torch = pytest.importorskip("torch")
    if device == "cpu":
        pytest.skip("the other tests cover the CPU")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    side = torch.cuda.Stream()
    for stream in (torch.cuda.current_stream(), side):
        with torch.cuda.stream(stream):
            # This takes so long that the zeros would be read if nothing waited for it.
            x = torch.zeros(4096, 4096, device="cuda")
            for _ in range(20):
                x = x + torch.ones_like(x)
            t = _core.from_dlpack(x)
            assert t.device == device
            (doubled,) = _core.apply("add", [t, t])
            y = torch.from_dlpack(doubled)
            total = (y == 40).sum()
            columns = _core.from_dlpack(x[:, ::512])
            del doubled, y, t
        assert total.item() == 4096 * 4096
        assert not columns.is_contiguous
        assert (columns.numpy() == 20).all()


def test_a_gpu_tensor_is_handed_to_the_cpu(device):
    t = _core.from_numpy(np.arange(4.0), device)
    capsule = t.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    assert _core.from_dlpack(capsule).device == "cpu"
    if device != "cpu":
        with pytest.raises(BufferError, match="without a copy"):
            t.__dlpack__(dl_device=(1, 0), copy=False)
        with pytest.raises(ValueError, match="stream 0"):
            t.__dlpack__(stream=0)

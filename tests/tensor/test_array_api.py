"""Tensors share memory as the array API standard says of `from_dlpack` and `__dlpack__`.

The tests of DLPack in the suite of the standard's authors pass too: array_namespace.py, in this
folder, says how to run them. Source:
https://data-apis.org/array-api/latest/API_specification/generated/array_api.from_dlpack.html
"""

import ctypes
import inspect

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kerascnn as keras
from kerascnn import _core

from .dtypes import DTYPES

READ_ONLY, COPIED = 1, 2  # these are bits of the flags
CPU, CUDA = 1, 2  # these are types of devices

_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype = ctypes.c_void_p
_pointer_in.argtypes = [ctypes.py_object, ctypes.c_char_p]
_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype = ctypes.c_char_p
_name_of.argtypes = [ctypes.py_object]


def capsule_name(capsule):
    return _name_of(capsule).decode()


class Versioned(ctypes.Structure):
    """The first fields of a versioned structure."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
    )


def content_of(capsule):
    address = _pointer_in(capsule, b"dltensor_versioned")
    return Versioned.from_address(address)


def tensor(values, device="cpu"):
    return _core.from_numpy(np.asarray(values), device)


@st.composite
def arrays(draw):
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


VERSIONS = st.none() | st.tuples(st.integers(0, 2), st.integers(0, 3))


def test_signatures():
    names = inspect.signature(keras.from_dlpack).parameters
    assert [p.kind.name for p in names.values()] == [
        "POSITIONAL_ONLY",
        "KEYWORD_ONLY",
        "KEYWORD_ONLY",
    ]
    assert list(names) == ["x", "device", "copy"]
    assert names["device"].default is None and names["copy"].default is None
    x = tensor([1.0])
    x.__dlpack__(stream=None, max_version=None, dl_device=None, copy=None)
    with pytest.raises(TypeError):
        x.__dlpack__(None)


@settings(max_examples=200, deadline=None)
@given(arrays(), st.none() | st.booleans(), VERSIONS, st.booleans())
def test_every_request_that_can_be_met(values, copy, max_version, names_device):
    x = tensor(values)
    assert x.__dlpack_device__() == (CPU, 0)
    device = (CPU, 0) if names_device else None
    capsule = x.__dlpack__(copy=copy, max_version=max_version, dl_device=device)
    is_versioned = max_version is not None and max_version[0] >= 1
    assert capsule_name(capsule) == ("dltensor_versioned" if is_versioned else "dltensor")
    if is_versioned:
        content = content_of(capsule)
        assert content.major == 1
        assert bool(content.flags & COPIED) == (copy is True)
        assert not content.flags & READ_ONLY
    y = keras.from_dlpack(capsule)
    assert (y.shape, y.dtype, y.device) == (x.shape, x.dtype, x.device)
    np.testing.assert_array_equal(y.numpy(), values)
    if values.size:
        assert np.shares_memory(x.numpy(), y.numpy()) == (copy is not True)
    with pytest.raises(ValueError, match="can be used once"):
        keras.from_dlpack(capsule)


@settings(max_examples=100, deadline=None)
@given(arrays(), st.none() | st.booleans(), st.sampled_from([None, "cpu"]))
def test_from_dlpack_copies_as_it_is_told(values, copy, device):
    x = tensor(values)
    y = keras.from_dlpack(x, device=device, copy=copy)
    assert y.device == x.device and (y.shape, y.dtype) == (x.shape, x.dtype)
    np.testing.assert_array_equal(y.numpy(), values)
    if values.size:
        assert np.shares_memory(x.numpy(), y.numpy()) == (copy is not True)


class Producer:
    """Stands for another library's array, and notes what it is asked for."""

    def __init__(self, array, device=(CPU, 0)):
        self.array = array
        self.device = device
        self.asked = []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.asked.append({"stream": stream, "dl_device": dl_device, "copy": copy})
        assert max_version[0] == 1
        return self.array.__dlpack__(max_version=max_version)


def test_what_a_producer_is_asked_for():
    x = Producer(np.arange(3.0))
    keras.from_dlpack(x)
    keras.from_dlpack(x, copy=False)
    keras.from_dlpack(x, copy=True)
    nothing = {"stream": None, "dl_device": None, "copy": None}
    # Only this call makes a copy, and it makes one.
    assert x.asked == [nothing, {**nothing, "copy": False}, nothing]


def test_memory_out_of_reach_is_brought_to_the_host_by_its_own_library():
    metal = (8, 0)
    x = Producer(np.arange(3.0), metal)
    assert keras.from_dlpack(x, device="cpu").tolist() == [0, 1, 2]
    assert x.asked == [{"stream": None, "dl_device": (CPU, 0), "copy": None}]
    with pytest.raises(BufferError, match="device type 8 is not supported"):
        keras.from_dlpack(x)
    with pytest.raises(BufferError, match="device type 8 is not supported"):
        keras.from_dlpack(x, device="cpu", copy=False)


@pytest.mark.parametrize("error", [BufferError, MemoryError, RuntimeError])
def test_errors_of_the_producer_are_passed_on(error):
    class Failing(Producer):
        def __dlpack__(self, **arguments):
            raise error("not today")

    with pytest.raises(error, match="not today"):
        keras.from_dlpack(Failing(None))


def test_errors():
    with pytest.raises(AttributeError, match="__dlpack__ and __dlpack_device__, got list"):
        keras.from_dlpack([1.0])
    with pytest.raises(ValueError, match='device "tpu"|tpu'):
        keras.from_dlpack(np.zeros(2), device="tpu")
    with pytest.raises(BufferError, match=r"can't be handed over as device \(2, 0\)"):
        tensor([1.0]).__dlpack__(dl_device=(CUDA, 0), copy=False)
    unaligned = np.frombuffer(bytearray(17), "uint8")[1:].view("float64")
    with pytest.raises(BufferError, match="not aligned to their 8 bytes"):
        keras.from_dlpack(unaligned, copy=False)
    assert keras.from_dlpack(unaligned).tolist() == [0, 0]
    with pytest.raises((BufferError, TypeError, RuntimeError)):
        keras.from_dlpack(np.zeros(3, ">f4"))


def test_read_only_memory_is_marked():
    array = np.arange(3.0)
    array.flags.writeable = False
    x = keras.from_dlpack(array)
    assert x.read_only and content_of(x.__dlpack__(max_version=(1, 0))).flags == READ_ONLY
    with pytest.raises(BufferError, match="only DLPack 1.0 and newer can express"):
        x.__dlpack__()
    assert content_of(x.__dlpack__(max_version=(1, 0), copy=True)).flags == COPIED


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "complex64", "uint16"])
def test_dtypes_that_tensors_do_not_have(name):
    torch = pytest.importorskip("torch")
    x = torch.zeros(3, dtype=getattr(torch, name))
    with pytest.raises((TypeError, BufferError), match="float8|complex64|uint16"):
        keras.from_dlpack(x)


def test_a_tensor_stays_usable_when_its_consumer_took_it():
    x = tensor([1.0, 2.0])
    taken = np.from_dlpack(x)
    assert (x + 1.0).tolist() == [2.0, 3.0]
    taken[0] = 5.0
    assert x.tolist() == [5.0, 2.0]  # both share one memory, which lives as long as either does
    del x
    assert taken.tolist() == [5.0, 2.0]


def test_devices_and_streams_of_a_gpu(cuda_device):
    x = tensor([1.0, 2.0], cuda_device)
    assert x.__dlpack_device__() == (CUDA, 0)
    for stream in (None, -1, 1, 2):
        assert keras.from_dlpack(x.__dlpack__(stream=stream)).tolist() == [1.0, 2.0]
    for stream in (0, -2):
        with pytest.raises(ValueError, match="can't be used for a tensor on cuda:0"):
            x.__dlpack__(stream=stream)
    on_host = x.__dlpack__(dl_device=(CPU, 0), max_version=(1, 0))
    assert content_of(on_host).flags == COPIED
    assert keras.from_dlpack(on_host).device == "cpu"
    for wrong in ({"dl_device": (CPU, 0), "copy": False}, {"dl_device": (CUDA, 7)}):
        with pytest.raises(BufferError, match="can't be handed over as device"):
            x.__dlpack__(**wrong)
    moved = keras.from_dlpack(tensor([3.0]), device="gpu")
    assert moved.device == cuda_device and moved.tolist() == [3.0]
    with pytest.raises(BufferError, match="without a copy"):
        keras.from_dlpack(tensor([3.0]), device="gpu", copy=False)

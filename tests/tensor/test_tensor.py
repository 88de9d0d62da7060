"""Tensors in Python: their properties, NumPy in and out, views, and ops that run at once."""

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

from kerascnn import _core

from .dtypes import DTYPES


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def sample(dtype, shape=(3, 4)):
    values = np.random.default_rng(7).integers(0, 100, shape)
    return values.astype(numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 0, 3), (2, 1, 3, 2)])
def test_numpy_round_trip(dtype, shape, device):
    x = sample(dtype, shape)
    t = _core.from_numpy(x, device)
    assert (t.shape, t.dtype, t.device) == (shape, dtype, device)
    assert (t.size, t.ndim, t.nbytes) == (x.size, x.ndim, x.nbytes)
    assert t.is_contiguous and not t.read_only
    y = t.numpy()
    assert y.dtype == x.dtype and y.shape == x.shape
    assert np.array_equal(x, y)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda x: x.T, id="transposed"),
        pytest.param(lambda x: x[::-1, ::2], id="negative and long strides"),
        pytest.param(lambda x: x[1:, 1:], id="offset"),
        pytest.param(lambda x: np.broadcast_to(x[0], (5, 8)), id="zero strides"),
        pytest.param(lambda x: x.astype(x.dtype.newbyteorder(">")), id="foreign byte order"),
        pytest.param(lambda x: np.asfortranarray(x), id="Fortran order"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_from_numpy_takes_any_layout(make, dtype, device):
    x = make(sample(dtype, (6, 8)))
    t = _core.from_numpy(x, device)
    assert t.dtype == dtype
    assert np.array_equal(t.numpy(), x)


def test_from_numpy_copies(device):
    x = sample("float32")
    x.flags.writeable = False
    t = _core.from_numpy(x, device)
    y = x.copy()
    x.flags.writeable = True
    x[:] = -1
    assert np.array_equal(t.numpy(), y)


@pytest.mark.parametrize(
    ("array", "name"),
    [
        (np.array(["a", "b"]), "str"),
        (np.array([object()]), "object"),
        (np.zeros(2, np.complex64), "complex64"),
        (np.zeros(2, np.uint16), "uint16"),
        (np.zeros(2, "datetime64[s]"), "datetime64"),
        (np.zeros(2, [("x", "f4")]), "void"),
        ([[1.0], "x"], None),
    ],
)
def test_unsupported_dtypes_are_type_errors(array, name):
    if name is None:
        with pytest.raises(ValueError, match="inhomogeneous"):
            _core.from_numpy(array, "cpu")
        return
    with pytest.raises(TypeError, match=f'dtype "{name}.*not supported.*float32'):
        _core.from_numpy(array, "cpu")


def test_numpy_on_the_cpu_is_a_view_that_keeps_the_memory(settled_memory):
    t = _core.from_numpy(sample("float32"), "cpu")
    a, b = t.numpy(), t.numpy()
    assert np.shares_memory(a, b) and a.flags.writeable
    a[0, 0] = 42
    assert b[0, 0] == 42
    allocated = _core.memory_stats("cpu")["allocated"]
    del t, b
    gc.collect()
    assert a[0, 0] == 42 and _core.memory_stats("cpu")["allocated"] == allocated
    del a
    gc.collect()
    assert _core.memory_stats("cpu")["allocated"] < allocated


def test_array_protocol(device):
    x = sample("float32")
    t = _core.from_numpy(x, device)
    assert np.array_equal(np.asarray(t), x)
    assert np.asarray(t, dtype="float64").dtype == np.float64
    assert not np.shares_memory(np.array(t, copy=True), t.numpy())
    if device == "cpu":
        assert np.shares_memory(np.array(t, copy=False), t.numpy())
    else:
        with pytest.raises(ValueError, match="without a copy"):
            np.array(t, copy=False)
    with pytest.raises(ValueError, match="without a copy"):
        np.array(t, dtype="int32", copy=False)


def test_zeros_and_empty(device):
    assert np.array_equal(_core.zeros([2, 3], "int32", device).numpy(), np.zeros((2, 3), "int32"))
    assert _core.empty((2, 0), "bool", device).numpy().shape == (2, 0)
    with pytest.raises(ValueError, match="non-negative"):
        _core.empty((2, -1), "bool", device)
    with pytest.raises(TypeError, match='dtype "float8"'):
        _core.empty((2,), "float8", device)


def test_reshape_shares_memory():
    t = _core.from_numpy(np.arange(6.0), "cpu")
    v = t.reshape((2, -1))
    assert v.shape == (2, 3) and np.shares_memory(t.numpy(), v.numpy())
    with pytest.raises(ValueError, match=r"\(6,\) with 6 elements can't take the shape \(4,\)"):
        t.reshape([4])


def test_move_between_devices(device):
    x = sample("float16")
    t = _core.from_numpy(x, "cpu").to(device)
    assert t.device == device
    assert np.array_equal(t.to("cpu").numpy(), x)
    with pytest.raises(ValueError, match='"tpu" is not known'):
        t.to("tpu")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_ops_run_at_once(dtype, device):
    x = sample(dtype)
    t = _core.from_numpy(x, device)
    (y,) = _core.apply("add", [t, t])
    assert y.dtype == dtype and np.array_equal(y.numpy(), x + x)
    (z,) = _core.apply("reduce_sum", [t], {"axes": [], "keepdims": False})
    # Sums of up to 12 integers below 100 are exact in each of these dtypes except bfloat16.
    if dtype != "bfloat16":
        assert z.numpy() == x.sum()


def test_attributes_of_every_kind_arrive(device):
    t = _core.from_numpy(np.array([-2.0, 0.5, 3.0], "float32"), device)
    clip = _core.apply("clip", [t], {"min": 0, "max": 1.5})[0]
    assert clip.numpy().tolist() == [0.0, 0.5, 1.5]
    cast = _core.apply("cast", [t], {"dtype": "int32"})[0]
    assert cast.numpy().tolist() == [-2, 0, 3]
    total = _core.apply("reduce_sum", [t], {"axes": (0,), "keepdims": True})[0]
    assert total.shape == (1,)


def test_errors_name_the_op(device):
    t = _core.zeros((3, 4), "float32", device)
    with pytest.raises(ValueError, match=r"^add: .*\(3, 4\).*\(3, 5\)"):
        _core.apply("add", [t, _core.zeros((3, 5), "float32", device)])
    with pytest.raises(ValueError, match=r'^softmax: attribute "axis" is missing'):
        _core.apply("softmax", [t])
    with pytest.raises(TypeError, match=r"^add: "):
        _core.apply("add", [t, _core.zeros((3, 4), "int32", device)])
    with pytest.raises(ValueError, match="no_such_op"):
        _core.apply("no_such_op", [t])


def test_mixed_devices_are_refused(device):
    if device == "cpu":
        pytest.skip("needs a GPU beside the CPU")
    a = _core.zeros((3,), "float32", "cpu")
    with pytest.raises(_core.DeviceError, match=r"add: .*input 0 is on cpu and input 1 on cuda:0"):
        _core.apply("add", [a, a.to(device)])


def test_variables_own_their_memory(device):
    x = sample("float32")
    t = _core.from_numpy(x, device)
    v = _core.Variable("kernel", t)
    assert (v.name, v.shape, v.dtype, v.device) == ("kernel", (3, 4), "float32", device)
    v.assign(_core.zeros((3, 4), "float32", "cpu"))
    assert not v.value.numpy().any()
    assert np.array_equal(t.numpy(), x)
    with pytest.raises(ValueError, match=r"variable kernel is float32 \(3, 4\)"):
        v.assign(_core.zeros((4, 3), "float32", device))


def test_tensors_are_freed_without_the_cycle_collector(device):
    gc.disable()
    try:
        t = _core.zeros((3, 4), "float32", device)
        alive = weakref.ref(t)
        array = t.numpy()
        del t, array
        assert alive() is None
    finally:
        gc.enable()

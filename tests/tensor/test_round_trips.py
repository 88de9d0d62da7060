"""Memory is shared with NumPy, PyTorch, JAX and CuPy, both ways, in every dtype, without leaks.

A library that is not installed is skipped. On a GPU the order of work on both streams must be
right.
"""

import gc
import os
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops

from .dtypes import DTYPES

# Without this JAX takes most of a GPU's memory when it first uses it.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

SHAPES = [(), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 4)]
CYCLES = 10_000


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


class NumPy:
    """Makes NumPy's arrays and looks at them; the classes below do so for other libraries."""

    has_bfloat16 = False
    can_write = True

    def __init__(self, device):
        self.device = device
        if device != "cpu":
            pytest.skip("NumPy has no GPU")

    def make(self, values):
        return np.array(values)

    def take(self, tensor):
        return np.from_dlpack(tensor)

    def pointer(self, array):
        return array.__array_interface__["data"][0]

    def values(self, array):
        return np.asarray(array)


class PyTorch:
    has_bfloat16 = True
    can_write = True

    def __init__(self, device):
        self.torch = pytest.importorskip("torch")
        if device != "cpu" and not self.torch.cuda.is_available():
            pytest.skip("this PyTorch has no CUDA")
        self.device = device

    def make(self, values):
        if values.dtype.kind == "V":
            return self.make(values.astype("float32")).to(self.torch.bfloat16)
        return self.torch.from_numpy(np.array(values)).to(self.device)

    def take(self, tensor):
        return self.torch.from_dlpack(tensor)

    def pointer(self, array):
        return array.data_ptr()

    def values(self, array):
        if array.dtype == self.torch.bfloat16:
            return array.float().cpu().numpy().astype(ml_dtypes.bfloat16)
        return array.cpu().numpy()


class Jax:
    has_bfloat16 = True
    can_write = False

    def __init__(self, device):
        self.jax = pytest.importorskip("jax")
        kind = "cpu" if device == "cpu" else "cuda"
        try:
            self.place = self.jax.devices(kind)[0]
        except RuntimeError as error:
            pytest.skip(f"this JAX has no {kind}: {str(error).splitlines()[0]}")
        self.jax.config.update("jax_enable_x64", True)
        self.device = device

    def make(self, values):
        return self.jax.device_put(values, self.place)

    def take(self, tensor):
        return self.jax.dlpack.from_dlpack(tensor)

    def pointer(self, array):
        return array.unsafe_buffer_pointer()

    def values(self, array):
        return np.asarray(array)


class CuPy:
    has_bfloat16 = False
    can_write = True

    def __init__(self, device):
        self.cupy = pytest.importorskip("cupy")
        if device == "cpu":
            pytest.skip("CuPy has no arrays on a CPU")
        self.device = device

    def make(self, values):
        return self.cupy.asarray(values)

    def take(self, tensor):
        return self.cupy.from_dlpack(tensor)

    def pointer(self, array):
        return array.data.ptr

    def values(self, array):
        return self.cupy.asnumpy(array)


LIBRARIES = {"numpy": NumPy, "torch": PyTorch, "jax": Jax, "cupy": CuPy}


@pytest.fixture(params=LIBRARIES)
def library(request, device):
    return LIBRARIES[request.param](device)


def pointer_of(tensor):
    """Returns the address of a tensor's memory, as the simplest consumer finds it."""
    if tensor.device == "cpu":
        return tensor.numpy().__array_interface__["data"][0]
    if tensor.dtype == "bfloat16":
        tensor = tensor.piece(list(tensor.shape), "int16", 0)
    return tensor.__cuda_array_interface__["data"][0]


def sample(rng, dtype, shape):
    return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(numpy_dtype(dtype))


def check_dtype(library, dtype):
    if dtype == "bfloat16" and not library.has_bfloat16:
        pytest.skip(f"{type(library).__name__} has no bfloat16")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_theirs_and_back(library, dtype, shape, rng):
    check_dtype(library, dtype)
    values = sample(rng, dtype, shape)
    theirs = library.make(values)
    ours = keras.from_dlpack(theirs)
    assert (ours.shape, ours.dtype, ours.device) == (shape, dtype, library.device)
    np.testing.assert_array_equal(ours.numpy(), values)
    if not library.can_write and ours.read_only:
        back = library.take(ours.copy())
    else:
        back = library.take(ours)
        if values.size:
            assert pointer_of(ours) == library.pointer(theirs) == library.pointer(back)
    np.testing.assert_array_equal(library.values(back), values)
    assert tuple(back.shape) == shape and back.dtype == theirs.dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_ours_and_back(library, dtype, shape, rng):
    check_dtype(library, dtype)
    values = sample(rng, dtype, shape)
    ours = _core.from_numpy(values, library.device)
    theirs = library.take(ours)
    back = keras.from_dlpack(theirs)
    if values.size:
        assert pointer_of(ours) == library.pointer(theirs) == pointer_of(back)
    np.testing.assert_array_equal(library.values(theirs), values)
    np.testing.assert_array_equal(back.numpy(), values)


def test_strided_arrays(library, rng):
    if type(library) is Jax:
        pytest.skip("JAX hands over row-major arrays only")
    values = rng.normal(size=(6, 8)).astype("float32")
    theirs = library.make(values)
    for view, expected in (
        (theirs.T, values.T),
        (theirs[1:, ::2], values[1:, ::2]),
        (theirs[2], values[2]),
        (theirs[:, 3:4], values[:, 3:4]),
    ):
        ours = keras.from_dlpack(view)
        assert pointer_of(ours) == library.pointer(view)
        np.testing.assert_array_equal(ours.numpy(), expected)
        back = library.take(ours)
        assert library.pointer(back) == library.pointer(view)
        np.testing.assert_array_equal(library.values(back), expected)
        np.testing.assert_array_equal((ours * 2.0).numpy(), expected * 2)


def test_writes_are_seen_on_the_other_side(library):
    if not library.can_write:
        pytest.skip("its arrays don't change")
    ours = _core.zeros([4], "float32", library.device)
    theirs = library.take(ours)
    theirs[1] = 5.0
    library.values(theirs)  # this waits for the other library's stream, which ours does not know
    assert ours.tolist() == [0, 5, 0, 0]
    theirs = library.make(np.zeros(4, "float32"))
    ours = keras.from_dlpack(theirs)
    theirs[2] = 7.0
    library.values(theirs)
    assert ours.tolist() == [0, 0, 7, 0]


def test_both_may_let_go_first(library, settled_memory):
    values = np.arange(100.0, dtype="float32")
    theirs = library.make(values)
    ours = keras.from_dlpack(theirs)
    part = ours.reshape((10, 10))
    del theirs, ours
    settle(library.device)
    np.testing.assert_array_equal(part.numpy().ravel(), values)
    allocated = _core.memory_stats(library.device)["allocated"]
    ours = _core.from_numpy(values, library.device)
    theirs = library.take(ours)
    del ours
    gc.collect()
    np.testing.assert_array_equal(library.values(theirs), values)
    del theirs
    settle(library.device)
    assert _core.memory_stats(library.device)["allocated"] == allocated


def test_copies_and_other_devices(library, rng):
    values = rng.normal(size=5).astype("float32")
    theirs = library.make(values)
    copied = keras.from_dlpack(theirs, copy=True)
    assert pointer_of(copied) != library.pointer(theirs) and not copied.read_only
    on_host = keras.from_dlpack(theirs, device="cpu")
    assert on_host.device == "cpu" and on_host.numpy().tolist() == values.tolist()
    shared = keras.from_dlpack(theirs, copy=False)
    assert pointer_of(shared) == library.pointer(theirs)
    if library.device != "cpu":
        with pytest.raises(BufferError, match="can't get to cpu without a copy"):
            keras.from_dlpack(theirs, device="cpu", copy=False)
        to_gpu = keras.from_dlpack(np.array(values), device="gpu")
        assert to_gpu.device == library.device


def test_ops_and_layers_take_them(library, rng):
    values = rng.normal(size=(4, 3)).astype("float32")
    with keras.device(library.device):
        theirs = library.make(values)
        layer = keras.layers.Dense(2)
        result = layer(theirs)
        assert result.device == library.device
        np.testing.assert_array_equal(result.numpy(), layer(ops.convert_to_tensor(values)).numpy())
        tensor = ops.convert_to_tensor(theirs)
        # Users often write to NumPy's arrays later, so their present values are copied.
        assert (pointer_of(tensor) == library.pointer(theirs)) == (type(library) is not NumPy)
        np.testing.assert_allclose(ops.add(theirs, 1.0).numpy(), values + 1)


def test_variables_are_shared(library, rng):
    values = rng.normal(size=4).astype("float32")
    v = keras.Variable(values, device_name=library.device)
    theirs = library.take(v)
    assert library.pointer(theirs) == pointer_of(v.value)
    v.assign(values + 1)
    _core.synchronize(library.device)
    np.testing.assert_array_equal(library.values(theirs), values + 1)


def settle(device):
    """Waits until all memory has been given back. On a GPU that takes a moment."""
    gc.collect()
    _core.synchronize(device)


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def least_growth(cycle, device, cycles):
    """Returns the least growth of a round of cycles, in bytes of the process and in Python objects.

    A leak in each cycle shows in every round, and anything else that the process does shows in
    some.
    """
    seen = []
    for _ in range(5):
        for _ in range(cycles // 4):
            cycle()
        settle(device)
        seen.append((resident_bytes(), len(gc.get_objects())))
    growths = np.diff(np.array(seen), axis=0)
    return growths.min(axis=0)


def test_ten_thousand_cycles_leak_nothing(library, settled_memory):
    theirs = library.make(np.zeros(1024, "float32"))
    own = _core.zeros([1024], "float32", library.device)

    def cycle():
        ours = keras.from_dlpack(theirs)
        again = library.take(own)
        del ours, again
        fresh = library.take(own.copy())
        back = keras.from_dlpack(fresh)
        del fresh, back

    cycle()
    settle(library.device)
    allocated = _core.memory_stats(library.device)["allocated"]
    references = sys.getrefcount(theirs), sys.getrefcount(own)
    num_bytes, num_objects = least_growth(cycle, library.device, CYCLES)
    # A library such as JAX may hold an array of the first cycle or of the last one for a while.
    assert _core.memory_stats(library.device)["allocated"] <= allocated + own.nbytes
    assert (sys.getrefcount(theirs), sys.getrefcount(own)) == references
    # Each round makes 2,500 arrays of 4 KiB and hands them over.
    assert num_bytes < 1 << 20 and num_objects < 100


def test_capsules_and_cycles_of_references_leak_nothing(device, settled_memory):
    """Neither objects in cycles of references leak nor capsules that nobody takes."""
    before = _core.memory_stats(device)["allocated"]
    for _ in range(CYCLES // 10):
        x = _core.zeros([1024], "float32", device)
        x.__dlpack__(), x.__dlpack__(max_version=(1, 0))
        circle = [x, x.reshape((32, 32))]
        circle.append(circle)
        error = None
        try:
            keras.from_dlpack(x.__dlpack__(), copy=False).reshape((3,))
        except ValueError as caught:
            error = caught
            circle.append(error)
        del x, circle, error
    settle(device)
    assert _core.memory_stats(device)["allocated"] == before


def test_memory_of_eager_steps_with_views_is_flat(device, settled_memory):
    """The loop is like those of users: a tape, looks at values, and arrays that outlive a step."""
    values = np.random.default_rng(0).normal(size=(16, 8)).astype("float32")
    with keras.device(device):
        w = keras.Variable(np.zeros((8, 1), "float32"))
    seen = None

    def step():
        nonlocal seen
        x = keras.from_dlpack(values, device=device)
        with keras.GradientTape() as tape:
            hidden = ops.tanh(x @ w)
            looked_at = hidden.numpy(), np.asarray(hidden[0]), repr(hidden[:1])
            loss = ops.mean(ops.square(hidden - 1.0))
        w.assign_sub(0.01 * tape.gradient(loss, w))
        if device == "cpu":
            seen = np.from_dlpack(hidden), looked_at
        return float(loss)

    first = step()
    settle(device)
    allocated = _core.memory_stats(device)["allocated"]
    last = None

    def cycle():
        nonlocal last
        last = step()

    num_bytes, num_objects = least_growth(cycle, device, CYCLES if device == "cpu" else 1000)
    assert last < first
    assert _core.memory_stats(device)["allocated"] == allocated
    assert num_bytes < 1 << 20 and num_objects < 100


def test_threads_share_at_the_same_time(library):
    shared = library.make(np.arange(256.0, dtype="float32"))
    own = _core.from_numpy(np.arange(256.0, dtype="float32"), library.device)
    errors = []

    def work():
        try:
            theirs = shared
            if type(library) is Jax and library.device != "cpu":
                # JAX 0.11 counts the uses of an array on a GPU without a lock, and ends the process
                # when the count is off; array.__dlpack__() alone will do. See docs/interchange.md.
                theirs = library.make(np.arange(256.0, dtype="float32"))
            for _ in range(200):
                ours = keras.from_dlpack(theirs)
                back = keras.from_dlpack(library.take(own))
                assert float(ops.sum(ours + back)) == 2 * 32640
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_process_ends_in_order_with_shared_memory_left(device):
    code = (
        "import gc, numpy as np, kerascnn as keras\n"
        f"keras.config.set_device({device!r})\n"
        "class Owner(np.ndarray): pass\n"
        "x = np.arange(6.0).view(Owner)\n"
        "t = keras.from_dlpack(x)\n"
        "x.tensor = t\n"  # nobody else holds this cycle
        "y = keras.ops.ones((3,))\n"
        "capsule, versioned = y.__dlpack__(), y.__dlpack__(max_version=(1, 0))\n"
        "view = np.asarray(y)\n"
        "del t, y\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "")
    # nanobind reports objects left in the cycle, in builds that look for leaks.
    assert "Error" not in result.stderr and "Traceback" not in result.stderr

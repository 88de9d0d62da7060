"""A tape keeps memory that others may write to, and still nobody gets wrong gradients."""

import copy

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops


def tensor(values, device="cpu"):
    return _core.from_numpy(np.asarray(values, "float32"), device)


def square_on_tape(x):
    """Returns a tape that needs `x` for the gradient of its squares."""
    tape = keras.GradientTape()
    with tape:
        tape.watch(x)
        y = x * x
    return tape, y


def test_a_tensor_that_a_tape_needs_is_read_only_for_numpy():
    x = tensor([1.0, 2.0])
    tape, y = square_on_tape(x)
    view = x.numpy()
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 9.0
    assert tape.gradient(y, x).numpy().tolist() == [2.0, 4.0]
    del tape, y
    x.numpy()[0] = 9.0  # the tape no longer needs it
    assert x.numpy().tolist() == [9.0, 2.0]


def test_a_tensor_that_a_tape_needs_is_handed_to_others_as_a_copy():
    x = tensor([1.0, 2.0])
    tape, y = square_on_tape(x)
    for taken in (np.from_dlpack(x), _core.from_dlpack(x.__dlpack__()).numpy()):
        taken[0] = 9.0
    shared = np.from_dlpack(x, copy=False)
    assert np.shares_memory(shared, x.numpy()) and not shared.flags.writeable
    with pytest.raises(BufferError, match="a tape needs this tensor"):
        x.__dlpack__(copy=False)
    assert tape.gradient(y, x).numpy().tolist() == [2.0, 4.0]


def test_what_pytorch_writes_does_not_reach_a_tape():
    torch = pytest.importorskip("torch")
    x = tensor([1.0, 2.0])
    tape, y = square_on_tape(x)
    torch.from_dlpack(x)[0] = 9.0  # PyTorch can write whatever the flags say
    assert tape.gradient(y, x).numpy().tolist() == [2.0, 4.0]


@pytest.mark.parametrize("how", ["array", "view", "import"])
def test_memory_that_others_can_write_to_is_copied_by_tapes(how):
    array = np.array([1.0, 2.0], "float32")
    if how == "import":
        x = keras.from_dlpack(array)
    else:
        x = tensor(array)
        array = x.numpy() if how == "array" else x.numpy()[:1]
    tape, y = square_on_tape(x)
    array[0] = 9.0
    assert tape.gradient(y, x).numpy().tolist() == [2.0, 4.0]
    assert x.numpy()[0] == 9.0  # the memory is shared in spite of that


def test_a_view_that_is_gone_costs_nothing(settled_memory):
    x = tensor(np.zeros(1 << 16))
    before = _core.memory_stats("cpu")["allocated"]
    view = x.numpy()
    del view
    with keras.GradientTape() as tape:
        tape.watch(x)
        y = ops.square(x)
        seen = x.numpy()
        y = ops.square(x)
        # The plan of an op may keep a scalar; a copy of `x` would be as large as `y`.
        assert _core.memory_stats("cpu")["allocated"] < before + 1.5 * y.nbytes
    assert seen.sum() == 0 and tape.gradient(y, x) is not None


def test_views_of_variables_count_as_well():
    v = keras.Variable([1.0, 2.0])
    view = v.value.numpy()
    with keras.GradientTape() as tape:
        y = v * v
    view[0] = 9.0
    assert tape.gradient(y, v).numpy().tolist() == [2.0, 4.0]


def test_assignments_are_still_noticed():
    v = keras.Variable([1.0, 2.0])
    with keras.GradientTape() as tape:
        y = v * v
    v.assign([5.0, 5.0])
    with pytest.raises(ValueError, match="was written to after the call was recorded"):
        tape.gradient(y, v)
    with keras.GradientTape() as tape:
        y = ops.square(ops.copy(v))
    v.assign([1.0, 1.0])  # the error names this way out
    assert tape.gradient(y, v).numpy().tolist() == [10.0, 10.0]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda x: x.copy(), id="copy"),
        pytest.param(copy.copy, id="copy.copy"),
        pytest.param(copy.deepcopy, id="copy.deepcopy"),
        pytest.param(lambda x: x.contiguous(), id="contiguous"),
        pytest.param(lambda x: x.to("cpu"), id="to"),
        pytest.param(ops.copy, id="ops.copy"),
    ],
)
@pytest.mark.parametrize("strided", [False, True])
def test_copies_are_followed_by_tapes(make, strided, device):
    values = np.arange(6.0, dtype="float32").reshape(2, 3)
    if strided and device != "cpu":
        x = keras.from_dlpack(tensor(np.ascontiguousarray(values.T), device))
        x = ops.transpose(x)
    else:
        x = keras.from_dlpack(values.T).to(device) if strided else tensor(values, device)
    expected = 3 * np.square(x.to("cpu").numpy())
    with keras.GradientTape() as outer:
        outer.watch(x)
        with keras.GradientTape() as tape:
            tape.watch(x)
            y = make(x)
            y = y * y * y
        first = tape.gradient(y, x)
    assert first.device == device
    np.testing.assert_allclose(first.numpy(), expected, rtol=1e-6)
    second = outer.gradient(first, x)
    np.testing.assert_allclose(second.numpy(), 6 * x.numpy(), rtol=1e-6)


def test_moves_between_devices_are_followed(cuda_device):
    x = tensor([1.0, 2.0])
    with keras.GradientTape() as tape:
        tape.watch(x)
        y = x.to(cuda_device)
        z = y * y
    gradient = tape.gradient(z, x)
    assert gradient.device == "cpu" and gradient.numpy().tolist() == [2.0, 4.0]


def test_ops_copy_has_memory_of_its_own():
    v = keras.Variable([1.0, 2.0])
    before = ops.copy(v)
    v.assign([3.0, 4.0])
    assert before.numpy().tolist() == [1.0, 2.0]
    x = tensor([1.0])
    assert not np.shares_memory(ops.copy(x).numpy(), x.numpy())


def test_blocks_that_are_computed_again_see_what_they_saw():
    x = tensor([1.0, 2.0])
    view = x.numpy()
    with keras.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = keras.remat(lambda t: t * t)(x)
    view[0] = 9.0
    assert tape.gradient(y, x).numpy().tolist() == [2.0, 4.0]
    with keras.GradientTape() as outer:
        outer.watch(x)
        with keras.GradientTape() as tape:
            tape.watch(x)
            y = keras.remat(lambda t: t * t * t)(x)
        first = tape.gradient(y, x)
    assert outer.gradient(first, x).numpy().tolist() == [54.0, 12.0]


def test_compiled_functions_see_what_they_saw():
    x = tensor([1.0, 2.0])
    view = x.numpy()
    square = keras.jit(lambda t: t * t)
    with keras.GradientTape() as tape:
        tape.watch(x)
        y = square(x)
    view[0] = 9.0
    assert tape.gradient(y, x).numpy().tolist() == [2.0, 4.0]

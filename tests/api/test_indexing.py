"""x[...] means the same as in NumPy, with masks and arrays, at once and in compiled functions."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import ops
from kerascnn.ops.dispatch import to_tensor

SHAPE = (2, 3, 4, 5)


def random_index(rng, length):
    """Draws one index of any kind for an axis."""
    kinds = [
        lambda: slice(None),
        lambda: slice(None, None, -1),
        lambda: slice(*sorted(int(n) for n in rng.integers(0, length + 1, 2))),
        lambda: slice(length - 1, None, -2),
        lambda: int(rng.integers(-length, length)),
        lambda: np.array(rng.integers(-length, length)),
        lambda: rng.integers(-length, length, 3),
        lambda: rng.integers(-length, length, (2, 1)).astype("int32"),
        lambda: rng.integers(-length, length, 3).tolist(),
        lambda: rng.random(length) > 0.5,
        lambda: (rng.random(length) > 0.5).tolist(),
    ]
    return kinds[rng.integers(len(kinds))]()


def random_key(rng):
    key = [random_index(rng, length) for length in SHAPE[: rng.integers(1, 5)]]
    if rng.random() < 0.4:
        key.insert(rng.integers(len(key) + 1), None)
    if rng.random() < 0.2:
        key.insert(rng.integers(len(key) + 1), ...)
    if rng.random() < 0.1:
        key.insert(rng.integers(len(key) + 1), bool(rng.random() < 0.5))
    if rng.random() < 0.1:
        first = rng.integers(3)
        key = [*[slice(None)] * first, rng.random(SHAPE[first : first + 2]) > 0.5]
    return tuple(key) if len(key) > 1 or rng.random() < 0.5 else key[0]


def result_or_error(function):
    try:
        return np.asarray(function())
    except (IndexError, ValueError) as error:
        return error


def check_key(key, x, tensor):
    expected = result_or_error(lambda: x[key])
    received = result_or_error(lambda: tensor[key])
    if isinstance(expected, Exception):
        assert isinstance(received, Exception), f"{key}: NumPy says {expected}"
        return
    assert not isinstance(received, Exception), f"{key}: {received}"
    np.testing.assert_array_equal(received, expected, err_msg=str(key))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_any_index_means_what_it_means_in_numpy(dtype, device, rng):
    x = rng.integers(0, 2 if dtype == "bool" else 100, SHAPE).astype(dtype)
    tensor = to_tensor(x, device_name=device)
    for _ in range(400):
        check_key(random_key(rng), x, tensor)


def test_masks_of_every_kind(device):
    x = np.arange(12, dtype="float32").reshape(4, 3)
    tensor = to_tensor(x, device_name=device)
    rows = np.array([True, False, True, False])
    for mask in (rows, rows.tolist(), to_tensor(rows, device_name=device), keras.Variable(rows)):
        np.testing.assert_array_equal(tensor[mask].numpy(), x[rows])
        np.testing.assert_array_equal(tensor[mask, 1].numpy(), x[rows, 1])
        np.testing.assert_array_equal(ops.boolean_mask(tensor, mask).numpy(), x[rows])
    columns = np.array([False, True, True])
    np.testing.assert_array_equal(tensor[:, columns].numpy(), x[:, columns])
    np.testing.assert_array_equal(tensor[0, columns].numpy(), x[0, columns])
    np.testing.assert_array_equal(ops.boolean_mask(tensor, columns, axis=1).numpy(), x[:, columns])
    np.testing.assert_array_equal(tensor[tensor > 4].numpy(), x[x > 4])
    assert tensor[rows & False].shape == (0, 3)


def test_gradients_of_what_masks_and_arrays_pick(device):
    x = keras.Variable(np.arange(6, dtype="float32").reshape(2, 3))
    with keras.device(device), keras.GradientTape(persistent=True) as tape:
        picked = ops.sum(x[x > 2] ** 2)
        twice = ops.sum(x[[0, 1, 0], [2, 0, 2]])
    np.testing.assert_array_equal(tape.gradient(picked, x).numpy(), [[0, 0, 0], [6, 8, 10]])
    np.testing.assert_array_equal(tape.gradient(twice, x).numpy(), [[0, 0, 2], [1, 0, 0]])


def test_in_a_compiled_function(device, rng):
    x = rng.standard_normal(SHAPE).astype("float32")
    rows, columns = rng.integers(-2, 2, 6), rng.integers(-3, 3, (4, 1))
    mask = rng.random(3) > 0.5

    @keras.jit
    def pick(x, rows, columns):
        return x[rows, columns], x[:, columns, 1:, rows], x[0, mask], x[..., rows]

    with keras.device(device):
        results = pick(x, rows, columns)
    expected = (x[rows, columns], x[:, columns, 1:, rows], x[0, mask], x[..., rows])
    for received, numbers in zip(results, expected, strict=True):
        np.testing.assert_array_equal(received.numpy(), numbers)


def test_a_mask_that_a_step_computes_says_what_to_use_instead():
    @keras.jit
    def positive(x):
        return x[x > 0]

    for call in (
        lambda: positive(np.ones(3, "float32")),
        lambda: keras.Input((3,))[keras.Input((3,)) > 0],
    ):
        with pytest.raises(ValueError, match=r"ops\.where.*ops\.boolean_mask"):
            call()


@pytest.mark.parametrize(
    ("key", "part"),
    [
        (np.array([True, False]), "mask of shape (2,) does not fit a tensor of shape (4, 3)"),
        ([0.5], "integers or bools"),
        ([4], "index 4 is out of range for axis 0"),
        ((0, -4), "index -4 is out of range for axis 1"),
        ((0, 0, 0), "3 indices for a tensor of 2 axes"),
        ((..., ...), "one '...'"),
    ],
)
def test_wrong_indices(key, part):
    with pytest.raises(IndexError) as caught:
        ops.ones((4, 3))[key]
    assert part in str(caught.value)


def test_take_refuses_masks():
    """NumPy's `take` accepts masks as the positions 0 and 1, which is rarely what is meant."""
    for mask in ([True, False], np.array([True]), ops.convert_to_tensor([True])):
        with pytest.raises(TypeError, match="boolean_mask"):
            ops.take(ops.arange(4), mask)
    with pytest.raises(TypeError, match="boolean_mask"):
        keras.jit(lambda x: ops.take(x, x > 1))(np.arange(4))
    with pytest.raises(TypeError, match="must be of bools"):
        ops.boolean_mask(ops.arange(4), [1, 0, 1, 0])

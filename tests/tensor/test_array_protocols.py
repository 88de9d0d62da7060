"""What Python and NumPy ask of arrays works as in NumPy, or raises a clear error."""

import copy
import operator
import pickle

import ml_dtypes
import numpy as np
import pytest

import kerascnn as keras
from kerascnn import _core, ops

from .dtypes import DTYPES


def sample(rng, dtype, shape=(3, 4)):
    name = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return rng.integers(0, 100, shape).astype(name)


def tensor(values, device="cpu"):
    return _core.from_numpy(np.asarray(values), device)


DUPLICATES = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("how", DUPLICATES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 4)])
def test_duplicates_have_their_own_memory(how, dtype, shape, rng, device):
    x = sample(rng, dtype, shape)
    t = tensor(x, device)
    y = DUPLICATES[how](t)
    assert type(y) is keras.Tensor
    assert (y.shape, y.dtype, y.device) == (t.shape, t.dtype, t.device)
    np.testing.assert_array_equal(y.numpy(), x)
    if device == "cpu" and x.size:
        assert not np.shares_memory(y.numpy(), t.numpy())


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_every_protocol(protocol):
    x = ops.transpose(tensor([[1.0, 2.0], [3.0, 4.0]]))
    y = pickle.loads(pickle.dumps(x, protocol))
    assert y.tolist() == x.tolist() and y.is_contiguous


def test_deepcopy_keeps_what_is_one_thing_one_thing():
    x = tensor([1.0])
    a, b = copy.deepcopy([x, x])
    assert a is b and a is not x


@pytest.mark.parametrize("how", DUPLICATES)
def test_duplicates_of_variables(how, device):
    with keras.device(device):
        v = keras.Variable([1.0, 2.0], trainable=False, name="scale")
    w = DUPLICATES[how](v)
    v.assign([3.0, 4.0])
    assert w.numpy().tolist() == [1.0, 2.0]
    assert (w.name, w.path, w.dtype, w.device, w.trainable) == (
        (v.name, v.path, v.dtype, v.device, v.trainable)
    )
    w.assign_add([1.0, 1.0])
    assert w.numpy().tolist() == [2.0, 3.0]
    with keras.GradientTape() as tape:
        tape.watch(w)
        y = w * w
    assert tape.gradient(y, w).numpy().tolist() == [4.0, 6.0]


def test_length_and_iteration(rng):
    x = sample(rng, "float32", (3, 2))
    t = tensor(x)
    assert len(t) == len(x) and len(keras.Variable(x)) == 3 and len(tensor(np.zeros((0, 2)))) == 0
    for part, expected in zip(t, x, strict=True):
        np.testing.assert_array_equal(part.numpy(), expected)
    first, *rest = t
    assert first.shape == (2,) and len(rest) == 2
    scalar = tensor(1.0)
    with pytest.raises(TypeError, match="without axes has no length"):
        len(scalar)
    with pytest.raises(TypeError, match="cannot be iterated over"):
        iter(scalar)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_numbers(dtype, shape, device):
    for value in (0, 1):
        t = _core.from_numpy(
            np.full(shape, value, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype), device
        )
        assert bool(t) is bool(value)
        assert float(t) == value and int(t) == value and t.item() == value
        assert type(t.item()) is type(np.zeros((), "f4" if dtype == "bfloat16" else dtype).item())


@pytest.mark.parametrize("shape", [(0,), (2,), (2, 2)])
def test_what_is_no_single_number(shape):
    t = tensor(np.ones(shape))
    with pytest.raises(ValueError, match="neither true nor false. Use ops.any"):
        bool(t)
    for number in (float, int, keras.Tensor.item):
        with pytest.raises(ValueError, match="Only a tensor of one element"):
            number(t)


def test_indices():
    letters = "abcdef"
    assert letters[tensor(3)] == "d" and letters[keras.Variable(2, dtype="int32")] == "c"
    assert list(range(tensor(np.int64(2)))) == [0, 1]
    assert operator.index(tensor(np.uint8(7))) == 7
    for wrong in (tensor(1.0), tensor([1]), tensor(True)):
        with pytest.raises(TypeError, match="can be an index"):
            letters[wrong]


def test_membership(rng):
    x = sample(rng, "int32", (3, 4))
    t, v = tensor(x), keras.Variable(x, dtype="int32")
    for value in (int(x[1, 2]), 1000):
        assert (value in t) == (value in v) == (value in x)
    row = x[1]
    assert row in t and None not in t and "x" not in t


def test_comparisons(rng):
    x = sample(rng, "float32")
    t = tensor(x)
    y = np.where(rng.random(x.shape) < 0.5, x, x + 1)
    for compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        np.testing.assert_array_equal(compare(t, tensor(y)).numpy(), compare(x, y))
        np.testing.assert_array_equal(compare(t, y).numpy(), compare(x, y))
        np.testing.assert_array_equal(compare(y, t).numpy(), compare(y, x))
        np.testing.assert_array_equal(compare(t, 3.0).numpy(), compare(x, 3.0))
    for other in (None, "same", b"same"):
        assert not (t == other).numpy().any() and (t == other).shape == t.shape
        assert (t != other).numpy().all()
    with pytest.raises(TypeError, match="cannot be made a tensor"):
        t == object()  # noqa: B015
    with pytest.raises(ValueError, match="can't be broadcast together"):
        t == np.zeros(3)  # noqa: B015


BITS = (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_operators_of_bits(dtype, device, rng):
    """The operators work on bits, not on truth values, as in NumPy and in Keras' backends."""
    x, y = (rng.integers(0, 2 if dtype == "bool" else 8, (3, 4)).astype(dtype) for _ in range(2))
    numbers = (1, True) if dtype != "bool" else (True,)
    with keras.device(device):
        for compute in BITS[: 3 if dtype == "bool" else 5]:
            expected = compute(x, y)
            for function in (compute, keras.jit(compute)):
                np.testing.assert_array_equal(function(tensor(x), tensor(y)).numpy(), expected)
            np.testing.assert_array_equal(compute(tensor(x), y).numpy(), expected)
            np.testing.assert_array_equal(compute(x, tensor(y)).numpy(), expected)
            for number in numbers if compute in BITS[:3] else (1,):
                left, right = compute(tensor(x), number), compute(number, tensor(x))
                np.testing.assert_array_equal(left.numpy(), compute(x, number))
                np.testing.assert_array_equal(right.numpy(), compute(number, x))
        for invert in (operator.invert, keras.jit(operator.invert)):
            np.testing.assert_array_equal(invert(tensor(x)).numpy(), ~x)


def test_symbolic_tensors_and_variables_have_truth_values():
    """Keras gives these operators another meaning for symbolic tensors and variables."""
    six = keras.Variable(6, dtype="int32")
    assert (six & 1).dtype == "bool" and six & 1  # bit by bit it would be 0
    assert (keras.Input((2,), dtype="int32") & 1).dtype == "bool"


@pytest.fixture
def on_cpu():
    with keras.device("cpu"):
        yield


@pytest.mark.usefixtures("on_cpu")
def test_variables_are_compared_by_their_values(rng):
    x = sample(rng, "float32")
    y = np.where(rng.random(x.shape) < 0.5, x, x + 1)
    variable = keras.Variable(x)
    for compare in (operator.eq, operator.ne):
        for other in (y, tensor(y), keras.Variable(y), 3.0):
            expected = compare(x, 3.0 if isinstance(other, float) else y)
            np.testing.assert_array_equal(compare(variable, other).numpy(), expected)
            np.testing.assert_array_equal(compare(other, variable).numpy(), expected)
    assert not (variable == None).numpy().any()  # noqa: E711
    steps = keras.optimizers.SGD().iterations
    assert steps == 0 and not steps == 1 and {steps: "one"}[steps] == "one"  # noqa: SIM201


def test_hashes_are_of_the_object():
    a, b = tensor([1.0]), tensor([1.0])
    assert hash(a) == hash(a) and len({a, b, a}) == 2


@pytest.mark.parametrize("spec", ["", ".2f", "8.3e", ">10"])
def test_formats_of_single_numbers(spec):
    value = np.float32(2.5)
    t = tensor(value)
    assert f"{t:{spec}}" == (repr(t) if not spec else format(2.5, spec))
    assert f"{keras.Variable(2.5):.1f}" == "2.5" and f"{tensor(np.int32(7)):03d}" == "007"
    with pytest.raises(TypeError, match="is one of numbers"):
        format(tensor([1.0, 2.0]), ".2f")


def test_divmod():
    x = np.array([7.0, -7.0])
    for ours, theirs in zip(divmod(tensor(x), 3.0), divmod(x, 3.0), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)
    for ours, theirs in zip(divmod(5.0, tensor(x)), divmod(5.0, x), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)


def test_nothing_is_assigned_to_parts():
    for x in (tensor([1.0, 2.0]), keras.Variable([1.0, 2.0])):
        with pytest.raises(TypeError, match=r"does not support item assignment. Use ops\."):
            x[0] = 5.0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(), (0,), (0, 3), (5,), (100,), (101,), (9, 30), (200, 2), (3, 400), (2, 3, 4, 50)]
)
def test_text(dtype, shape, rng, device):
    """The text is NumPy's, even where only the ends of a long tensor are copied to the host."""
    x = rng.normal(0, 1000, shape) if dtype in ("float32", "float64") else rng.integers(0, 2, shape)
    x = x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    shown = x.astype("float32") if dtype == "bfloat16" else x
    values = np.array2string(shown, separator=", ", prefix="Tensor(", threshold=100)
    assert repr(tensor(x, device)) == (
        f"Tensor({values}, shape={shape}, dtype={dtype}, device={device!r})"
    )


def test_text_is_nothing_that_a_tape_sees(device):
    t = tensor(np.ones((2000, 3), "float32"), device)
    with keras.GradientTape() as tape:
        tape.watch(t)
        text = repr(t)
        y = ops.sum(t * t)
    assert "..." in text and tape.gradient(y, t).numpy().sum() == 2 * 6000


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16"])
def test_the_array_protocol(dtype, rng, device):
    x = sample(rng, dtype)
    t = tensor(x, device)
    assert np.asarray(t).dtype == x.dtype
    assert np.asarray(t, dtype="float64").dtype == np.float64
    assert np.array_equal(np.array(t, copy=True), x)
    if device == "cpu":
        assert np.shares_memory(np.asarray(t), t.numpy())
        assert not np.shares_memory(np.array(t, copy=True), t.numpy())
    else:
        with pytest.raises(ValueError, match="without a copy"):
            np.asarray(t, copy=False)
    v = keras.Variable(np.float32([1.0, 2.0]), device_name=device)
    assert not np.shares_memory(np.asarray(v), np.asarray(v))
    if device == "cpu":
        shared = np.asarray(v, copy=False)
        v.assign([5.0, 6.0])
        assert shared.tolist() == [5.0, 6.0]


def test_lists_of_numbers(rng):
    for dtype in DTYPES:
        x = sample(rng, dtype, (2, 3))
        assert tensor(x).tolist() == x.astype("f4" if dtype == "bfloat16" else dtype).tolist()


def test_values_that_are_being_recorded_say_so():
    def step(x):
        for ask in (bool, float, int, iter, np.asarray):
            with pytest.raises(TypeError, match="has no value yet"):
                ask(x)
        with pytest.raises(TypeError):
            operator.index(x)
        return x + 1

    assert keras.jit(step)(tensor([1.0, 2.0])).tolist() == [2.0, 3.0]

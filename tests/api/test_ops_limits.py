"""Ops at the limits of dtypes, and with arguments that fit an axis in more than one way."""

import numpy as np
import pytest

from kerascnn import ops

INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
@pytest.mark.parametrize("name", ["softsign", "hard_sigmoid", "hard_silu", "log_sigmoid", "mish"])
def test_activations_of_integers_do_not_wrap_around(name, dtype):
    if dtype == "bool":
        x = np.array([False, True])
    else:
        limits = np.iinfo(dtype)
        x = np.array([max(limits.min, -(2**20)), 0, 1, 3, min(limits.max, 2**20)], dtype)
    received = getattr(ops, name)(x)
    assert received.dtype == "float32"
    expected = getattr(ops, name)(x.astype("float64")).numpy()
    # A few float32 roundings, and what float32 is too coarse for.
    np.testing.assert_allclose(received.numpy(), expected, rtol=1e-5, atol=1e-37)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_argmin_finds_the_lowest_integer(dtype, rng):
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, (5, 7), dtype, endpoint=True)
    x[3, 2] = limits.min
    x[1, 4] = limits.max
    assert int(ops.argmin(x)) == x.argmin()
    np.testing.assert_array_equal(ops.argmin(x, axis=1).numpy(), x.argmin(1))


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64"])
def test_saturate_cast_stays_within_the_range(source, target):
    x = ops.cast(np.array([-1e30, -1.0, 1.0, 1e30]), source)
    limits = np.iinfo(target)
    low, *middle, high = ops.saturate_cast(x, target).numpy().tolist()
    assert low == max(limits.min, -65504 if source == "float16" else limits.min)
    assert middle == [max(-1, limits.min), 1]
    # The largest number of the float dtype that the integer dtype has too.
    precision = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[source]
    bits = limits.max.bit_length()
    expected = limits.max if bits <= precision else 2**bits - 2 ** (bits - precision)
    assert high == (min(expected, 65504) if source == "float16" else expected)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_round_of_integers_to_tens(dtype):
    x = np.array([4, 5, 15, 16, 25, 99], dtype)
    received = ops.round(x, -1)
    assert received.dtype == dtype
    np.testing.assert_array_equal(received.numpy(), np.round(x.astype("float64"), -1))
    np.testing.assert_array_equal(ops.round(x, 1).numpy(), x)


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
def test_bincount_of_each_integer_dtype(dtype):
    x = np.array([1, 0, 1, 1], dtype)
    np.testing.assert_array_equal(ops.bincount(x).numpy(), [1, 3])
    np.testing.assert_array_equal(ops.bincount(x[:0], minlength=2).numpy(), [0, 0])


def test_one_variable_correlates_with_itself(rng):
    x = rng.normal(size=9)
    x -= x.mean()
    for row in (x, [1.0, -1.0], x + 3):
        np.testing.assert_allclose(float(ops.corrcoef(row)), np.corrcoef(row), rtol=1e-6)
    assert np.isnan(float(ops.corrcoef([2.0, 2.0])))


@pytest.mark.parametrize(
    ("shift", "axis"), [((1, 2), 0), ((1, 2), None), (2, (0, 1)), ((1, -1), (0, 1)), (1, (0, 0))]
)
def test_roll_adds_up_shifts(shift, axis, rng):
    x = rng.normal(size=(3, 5))
    np.testing.assert_array_equal(ops.roll(x, shift, axis).numpy(), np.roll(x, shift, axis))


def test_geomspace_has_no_way_from_one_sign_to_the_other():
    assert np.isnan(ops.geomspace(1.0, -8.0, 4).numpy()).any()
    np.testing.assert_allclose(ops.geomspace(-1.0, -8.0, 4).numpy(), [-1, -2, -4, -8], rtol=1e-6)


def test_values_given_as_lists():
    np.testing.assert_array_equal(ops.full((2, 2), [3, 4]).numpy(), [[3, 4], [3, 4]])
    assert ops.full((2, 2), [3, 4]).dtype == "int32"
    assert ops.vander([1.0, 2.0], 0).shape == (2, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.array_split([1, 2, 3], 0), "at least one part"),
        (lambda: ops.array_split([1, 2, 3], -1), "at least one part"),
        (lambda: ops.fliplr([1, 2]), "fliplr: axis 1"),
        (lambda: ops.flipud(1), "flipud: axis 0"),
        (lambda: ops.roll([[1, 2]], (1, 2, 3), (0, 1)), "3 shifts do not fit 2 axes"),
        (lambda: ops.repeat([1, 2], [1, 2, 3]), "`repeats` must be"),
        (lambda: ops.repeat([1, 2], -1), "`repeats` must be"),
        (lambda: ops.softmax([[1.0]], axis=(0, 2)), "axis 2 does not exist"),
        (lambda: ops.average([[1.0, 2.0]], axis=2, weights=[1.0]), "axis 2 does not exist"),
        (lambda: ops.hstack([]), "at least one tensor"),
        (lambda: ops.tensordot([1, 2], [1, 2], 2), "must have the axes"),
        (lambda: ops.tensordot([1, 2], [1, 2], -1), "must have the axes"),
        (lambda: ops.correlate([1.0], []), r"\(1,\), \(0,\)"),
    ],
)
def test_arguments_that_fit_no_axis(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_sizes_and_axes_can_be_integers_of_numpy():
    two = np.int64(2)
    assert ops.zeros(two).shape == (2,)
    assert ops.tile([1, 2], two).numpy().tolist() == [1, 2, 1, 2]
    assert [part.shape for part in ops.array_split([1, 2, 3], two)] == [(2,), (1,)]
    assert ops.sum([[[1, 2], [3, 4]]], axis=two).numpy().tolist() == [[3, 7]]
    assert ops.max([[[1, 2], [3, 4]]], axis=(np.int64(0), two)).numpy().tolist() == [2, 4]

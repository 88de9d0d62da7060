"""Ops in edge cases: no elements, few bits, sizes that are not known yet."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import ops

EMPTY = [((0,), None), ((0, 3), 0), ((0, 3), 1), ((3, 0), 1), ((3, 0), None), ((2, 0, 3), (0, 1))]


@pytest.mark.parametrize(("shape", "axis"), EMPTY)
@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.filterwarnings("ignore:.*(empty|All-NaN).*:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_medians_of_nothing_are_nan(name, shape, axis, keepdims):
    x = np.zeros(shape, "float32")
    expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    received = getattr(ops, name)(x, axis=axis, keepdims=keepdims)
    assert received.shape == np.shape(expected) and received.dtype == "float32"
    assert np.isnan(received.numpy()).all()


@pytest.mark.parametrize("name", ["quantile", "nanquantile", "percentile", "nanpercentile"])
def test_quantiles_of_nothing_are_nan(name):
    result = getattr(ops, name)(np.zeros((0, 3), "float32"), [0.25, 0.5], axis=0)
    assert result.shape == (2, 3) and np.isnan(result.numpy()).all()


@pytest.mark.parametrize(("shape", "axis"), EMPTY)
def test_logsumexp_of_nothing(shape, axis):
    x = np.zeros(shape, "float32")
    with np.errstate(divide="ignore"):
        expected = np.log(np.sum(np.exp(x), axis=axis))
    np.testing.assert_array_equal(ops.logsumexp(x, axis=axis).numpy(), expected)


def test_logsumexp_of_infinities():
    lowest, highest = [-np.inf, -np.inf], [np.inf, 1.0]
    assert ops.logsumexp(np.array([lowest, highest]), axis=1).numpy().tolist() == [-np.inf, np.inf]
    assert np.isnan(ops.logsumexp(np.array([np.nan, np.inf])).numpy())


def test_histogram_of_nothing():
    counts, edges = ops.histogram(np.zeros(0, "float32"), 4)
    expected_counts, expected_edges = np.histogram(np.zeros(0), 4)
    np.testing.assert_array_equal(counts.numpy(), expected_counts)
    np.testing.assert_array_equal(edges.numpy(), expected_edges)


@pytest.mark.parametrize("name", ["max", "min", "amax", "amin", "ptp", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "bool"])
def test_extremes_of_nothing_are_errors(name, dtype):
    for shape, axis in EMPTY:
        if axis == 1 and shape == (0, 3):  # there are no lines, but each would have three elements
            continue
        if not isinstance(axis, tuple) or name[:3] != "arg":
            with pytest.raises(ValueError, match=r"element|empty"):
                getattr(ops, name)(np.zeros(shape, dtype), axis=axis)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("other", ["uint8", "int64", "bool"])
def test_logaddexp2_keeps_the_digits_of_half_precision(dtype, other, rng):
    x = rng.integers(0, 2, 50) if other == "bool" else rng.integers(0, 100, 50)
    y = ops.cast(rng.uniform(-20, 20, 50), dtype)
    expected = np.logaddexp2(x.astype("float64"), ops.cast(y, "float64").numpy())
    received = ops.logaddexp2(x.astype(other), y)
    assert received.dtype == dtype
    # The result is rounded once to its dtype; what comes before is computed in float32.
    step = 2.0**-11 if dtype == "float16" else 2.0**-8
    np.testing.assert_allclose(ops.cast(received, "float64"), expected, rtol=1.01 * step, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    [
        ((None, 4), (-1, 2, 4), (None, 2, 4)),
        ((None, 4), (-1,), (None,)),
        ((None, None, None, 6), (-1, 36), (None, 36)),
        ((None, 10), (-1, 7, 10), (None, 7, 10)),
        ((None, 3), (5, -1), (5, None)),
    ],
)
def test_reshape_of_unknown_sizes(shape, target, expected):
    assert ops.reshape(keras.KerasTensor(shape), target).shape == expected


def test_a_model_may_change_the_number_of_samples(rng):
    inputs = keras.Input((4,))
    model = keras.Model(inputs, ops.reshape(inputs, (-1, 2, 4)))
    x = rng.standard_normal((6, 4)).astype("float32")
    assert model.output_shape == (None, 2, 4)
    np.testing.assert_array_equal(model.predict(x, verbose=0), x.reshape(-1, 2, 4))


def test_a_reshape_that_no_size_makes_possible():
    with pytest.raises(ValueError, match="cannot be arranged as \\(3, 5\\)"):
        ops.reshape(keras.KerasTensor((None, 4)), (3, 5))


def test_complex_parts_of_real_numbers():
    x = np.array([2.0, -0.5, 0.0, np.nan], "float32")
    for name in ("real", "imag", "conj", "conjugate", "isreal", "angle"):
        expected = getattr(np, name)(x)
        received = getattr(ops, name)(x).numpy()
        assert received.dtype == expected.dtype, name
        np.testing.assert_array_equal(received, expected, err_msg=name)
    assert ops.angle(np.array([-3])).numpy().tolist() == [np.float32(np.pi)]


@pytest.mark.parametrize("name", ["nn", "numpy", "linalg", "image"])
def test_submodules_hold_the_same_functions(name):
    module = getattr(ops, name)
    names = [n for n in vars(module) if n[0] != "_" and callable(getattr(module, n))]
    assert len(names) > 10
    if name != "image":
        assert all(getattr(module, n) is getattr(ops, n) for n in names)


@pytest.mark.parametrize("mode", ["reflect", "symmetric", "edge", "wrap"])
def test_pads_that_repeat(mode, device, rng):
    x = rng.standard_normal((2, 5, 3)).astype("float32")
    widths = ((0, 0), (4, 3), (1, 2))
    with keras.device(device):
        tensor = ops.convert_to_tensor(x)
        np.testing.assert_array_equal(
            ops.pad(tensor, widths, mode).numpy(), np.pad(x, widths, mode)
        )
    with pytest.raises(ValueError, match="constant_values"):
        ops.pad(x, 1, mode, 3.0)
    with pytest.raises(ValueError, match="no element"):
        ops.pad(np.zeros((0, 3)), 1, mode)
    with pytest.raises(ValueError, match="`mode` must be"):
        ops.pad(x, 1, "linear_ramp")


@pytest.mark.parametrize(
    "call",
    [
        lambda: ops.transpose(np.ones((2, 3)), (0, 3)),
        lambda: ops.swapaxes(np.ones((2, 3)), 0, 2),
        lambda: ops.moveaxis(np.ones((2, 3)), 2, 0),
        lambda: ops.moveaxis(np.ones((2, 3)), 0, -3),
        lambda: ops.moveaxis(np.ones((2, 3, 5)), [0, 1], [0, 0]),
        lambda: ops.moveaxis(np.ones((2, 3, 5)), [0, 0], [0, 1]),
        lambda: ops.moveaxis(np.ones((2, 3, 5)), [0, 1], [0]),
        lambda: ops.flip(np.ones((2, 3)), 2),
        lambda: ops.expand_dims(np.ones((2, 3)), (1, -3)),
        lambda: ops.split(np.arange(4), 0),
        lambda: ops.split(np.arange(4), -2),
        lambda: ops.stack([]),
        lambda: ops.concatenate([]),
    ],
)
def test_axes_and_parts_that_do_not_exist_are_errors(call):
    with pytest.raises(
        ValueError, match=r"^(transpose|swapaxes|moveaxis|flip|expand|split|st|conc)"
    ):
        call()


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_shares_are_from_0_to_1(name):
    for q in (-0.25, 1.25, [0.5, 2.0], float("nan")):
        with pytest.raises(ValueError, match=f"{name}: q is from 0 to 1"):
            getattr(ops, name)([1.0, 2.0, 3.0], q)
    with pytest.raises(ValueError, match="from 0 to 100"):
        getattr(ops, name.replace("quantile", "percentile"))([1.0, 2.0, 3.0], 101)
    with pytest.raises(ValueError, match="a number or a vector"):
        getattr(ops, name)([1.0, 2.0, 3.0], [[0.5]])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_what_is_not_a_number_is_sorted_behind_all_numbers(side, dtype):
    values = np.array([[np.nan, -1.0, 2.0], [2.5, 7.0, np.inf]], dtype)
    for sequence in ([0.0, 2.0, 4.0], [2.0, np.inf, np.nan, np.nan], [], [np.nan]):
        sequence = np.array(sequence, dtype)
        found = ops.searchsorted(sequence, values, side)
        np.testing.assert_array_equal(found.numpy(), np.searchsorted(sequence, values, side))
    edges = np.array([0.0, 2.0], dtype)
    np.testing.assert_array_equal(ops.digitize(values, edges).numpy(), np.digitize(values, edges))


def test_a_class_that_does_not_exist_is_not_among_the_largest():
    predictions = np.array([[0.1, 0.9]] * 4, "float32")
    assert ops.in_top_k([1, 2, -1, 0], predictions, 1).numpy().tolist() == [True, *[False] * 3]
    assert ops.in_top_k([1, 2, -1, 0], predictions, 2).numpy().tolist() == [
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_batches_of_integers_are_normalized_as_floats(rng, axis):
    x = rng.integers(-9, 9, (3, 4, 5))
    mean, variance = rng.normal(size=x.shape[axis]), rng.uniform(1, 2, x.shape[axis])
    view = [-1 if a == axis % 3 else 1 for a in range(3)]
    expected = (x - mean.reshape(view)) / np.sqrt(variance.reshape(view) + 1e-3)
    result = ops.batch_normalization(x, mean, variance, axis)
    assert result.dtype == "float32"
    # These are a few roundings to float32 of numbers up to 12.
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, atol=1e-5)
    with pytest.raises(ValueError, match="axis 3 does not exist"):
        ops.batch_normalization(x, mean, variance, 3)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_noise_of_integers_does_not_wrap_around(rng, dtype):
    x1, x2 = (rng.integers(0, 128, (5, 7)).astype(dtype) for _ in range(2))
    error = np.mean((x1.astype("float64") - x2) ** 2)
    expected = 20 * np.log10(127) - 10 * np.log10(error)
    result = ops.psnr(x1, x2, max_val=127)
    assert result.dtype == "float32"
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5)  # a sum in float32


@pytest.mark.parametrize(("floatx", "expected"), [("float16", "float32"), ("float64", "float64")])
def test_matrices_of_integers_are_computed_in_at_least_32_bits(floatx, expected):
    before = keras.config.floatx()
    keras.config.set_floatx(floatx)
    try:
        results = ops.inv([[2, 0], [0, 4]]), ops.det([[2, 1], [0, 4]]), ops.solve([[2]], [3])
    finally:
        keras.config.set_floatx(before)
    assert [y.dtype for y in results] == [expected] * 3
    for result, known in zip(results, ([[0.5, 0.0], [0.0, 0.25]], 8.0, [1.5]), strict=True):
        np.testing.assert_allclose(result.numpy(), known, rtol=1e-6)  # some roundings to float32

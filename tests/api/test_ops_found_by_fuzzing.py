"""Calls that failed once in tests/fuzzing, and what they are now."""

import numpy as np
import pytest

import kerascnn as keras
from kerascnn import ops


@pytest.mark.parametrize("repeats", [2**62, 2**61, [2**61, 2**61, 2**61, 2**61]])
def test_repeats_whose_sum_overflows(repeats):
    """NumPy's own `repeat` ends the process."""
    with pytest.raises(ValueError, match="repeat: an axis has up to"):
        ops.repeat(np.zeros((4, 0), "float32"), repeats, axis=0)


@pytest.mark.parametrize("call", [lambda: ops.arange(0, "x"), lambda: ops.linspace("x", 1, 3)])
def test_limits_that_are_no_numbers(call):
    with pytest.raises(TypeError, match="Expected a number, an array or a tensor"):
        call()


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_meshgrid_in_a_configuration(indexing):
    """Its tensors are arguments without names."""
    inputs = [keras.Input(batch_shape=(n,)) for n in (3, 2)]
    model = keras.Model(inputs, ops.meshgrid(*inputs, indexing=indexing))
    again = keras.Model.from_config(model.get_config())
    data = [np.arange(3.0), np.arange(2.0)]
    for ours, expected in zip(again(data), np.meshgrid(*data, indexing=indexing), strict=True):
        np.testing.assert_array_equal(ours.numpy(), expected)


@pytest.mark.parametrize("size", [float("inf"), float("nan"), 1.5])
def test_sizes_that_are_no_whole_numbers(size):
    with pytest.raises(ValueError, match="A size is None or an integer"):
        keras.Input((size,))


def test_configurations_that_are_nested_too_deeply():
    config = 0
    for _ in range(5000):
        config = [config]
    with pytest.raises(ValueError, match="nested deeper"):
        keras.saving.deserialize_keras_object({"a": config})
    with pytest.raises(ValueError, match="nested deeper"):
        keras.models.model_from_json("[" * 100_000)


NUMBERS = [
    *((2**31, "int32"), (-(2**31) - 1, "int32"), (2**62, "int32"), (2**63, "int64")),
    *((300, "uint8"), (-1, "uint8"), (128, "int8"), (10**30, "int64")),
]


@pytest.mark.parametrize(("number", "dtype"), NUMBERS)
@pytest.mark.parametrize("compiled", [False, True])
def test_numbers_that_a_dtype_does_not_have(number, dtype, compiled):
    """Compiled functions made another number of them, without a word."""
    x = np.zeros(2, dtype)
    for function in (lambda x: x + number, lambda _: ops.full((2,), number, dtype)):
        run = keras.jit(function) if compiled else function
        with pytest.raises(OverflowError):
            run(ops.convert_to_tensor(x))


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**53 - 1, 7])
def test_large_numbers_in_compiled_functions(number, device):
    with keras.device(device):
        x = ops.convert_to_tensor(np.array([0, -1 if number > 0 else 1]))
        added = keras.jit(lambda x: x + number)(x)
        filled = keras.jit(lambda x: ops.full((2,), number, x.dtype))(x)
    assert added.tolist() == [number, number - np.sign(number)]
    assert filled.tolist() == [number, number]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "float32"])
@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_indexes_of_a_compiled_function_count_from_the_end(dtype, axis, device):
    """They were the first element."""
    x = np.arange(12.0, dtype="float32").reshape(3, 4)
    length = 12 if axis is None else x.shape[axis]
    indices = np.array([[0, 2, length - 1]] if dtype == "uint8" else [[-1, 0, -length, -2]], dtype)
    with keras.device(device):
        given = ops.convert_to_tensor(x), ops.convert_to_tensor(indices)
        taken = keras.jit(lambda x, i: ops.take(x, i, axis))(*given)
    np.testing.assert_array_equal(taken.numpy(), np.take(x, indices.astype("int64"), axis))


@pytest.mark.parametrize("compiled", [False, True])
def test_indexes_lose_their_fractions_before_they_count_from_the_end(compiled, device):
    """At once, -0.7 was the last element."""
    indices = np.array([-0.7, 0.7, -1.2, 1.9, -3.9, 2.9], "float32")
    with keras.device(device):
        x, given = ops.convert_to_tensor([10, 20, 30]), ops.convert_to_tensor(indices)
        taken = (keras.jit(ops.take) if compiled else ops.take)(x, given)
        assert taken.tolist() == [10, 10, 30, 20, 10, 30]
        with pytest.raises(IndexError, match="Received: from nan to nan"):
            ops.take(x, np.array([np.nan], "float32"))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_indexes_of_a_small_dtype_in_a_long_axis(dtype, device):
    """At once they were an OverflowError."""
    indices = np.array([3, 0, 100] if dtype == "uint8" else [-3, 0, -128, 100], dtype)
    with keras.device(device):
        taken = ops.take(ops.arange(300), indices)
    np.testing.assert_array_equal(taken.numpy(), np.arange(300)[indices])


def test_indexes_of_a_compiled_function_out_of_range_are_the_nearest_in_range(device):
    with keras.device(device):
        x, indices = ops.arange(4.0), ops.convert_to_tensor(np.array([4, 99, -5, -99], "int32"))
        assert keras.jit(ops.take)(x, indices).tolist() == [3, 3, 0, 0]


@pytest.mark.parametrize("length", [0, 3])
def test_differences_of_nothing_end(length):
    """They were taken as often as was asked for."""
    assert ops.diff(ops.ones((2, length)), n=2**32).shape == (2, 0)
    with pytest.raises(TypeError):
        ops.diff(ops.ones((2, length)), n=2.5)


@pytest.mark.parametrize("sigma", [{}, {"a": 1}, None, 1.0, "x", [1.0], np.ones((2, 2))])
def test_blurs_have_two_deviations(sigma):
    """Dictionaries were a KeyError."""
    images = ops.ones((2, 4, 4, 2))
    with pytest.raises(ValueError, match="`sigma` must be two numbers"):
        ops.image.gaussian_blur(images, sigma=sigma)
    pairs = [(1, 1.0), np.ones(2), ops.ones((2,)), [ops.ones(()), ops.ones(())]]
    first, *others = [ops.image.gaussian_blur(images, sigma=pair).numpy() for pair in pairs]
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("parts", [65_537, 2**63 - 1])
def test_more_parts_than_places(parts):
    """All of them were listed, as long as there was memory."""
    assert len(ops.split(ops.ones((0,)), 7)) == len(ops.array_split(ops.ones((3,)), 7)) == 7
    for split, length in ((ops.split, 0), (ops.array_split, 3)):
        with pytest.raises(ValueError, match="split into up to 65536 parts"):
            split(ops.ones((length,)), parts)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 0, 0)])
def test_matrices_without_elements(shape, compiled):
    x = np.zeros(shape, "float32")

    def call(function, *arguments):
        given = [ops.convert_to_tensor(a) for a in arguments]
        return (keras.jit(function) if compiled else function)(*given)

    for name in ("inv", "cholesky", "cholesky_inverse"):
        assert call(getattr(ops, name), x).shape == shape
    np.testing.assert_array_equal(call(ops.det, x).numpy(), np.linalg.det(x))
    np.testing.assert_array_equal(call(ops.logdet, x).numpy(), np.zeros(shape[:-2]))
    packed, pivots = call(ops.lu_factor, x)
    assert packed.shape == shape and pivots.shape == shape[:-1]
    b = np.zeros((*shape[:-1], 3), "float32")
    assert call(ops.solve, x, b).shape == call(ops.solve_triangular, x, b).shape == b.shape


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["svd", "eigh", "pinv", "matrix_rank", "lstsq"])
def test_matrices_that_are_not_finite(name, number):
    """LAPACK's iterations did not end for some of them, so that the process hung."""
    x = np.eye(4, dtype="float32")
    x[2, 1] = number
    arguments = [x, np.ones(4, "float32")] if name == "lstsq" else [x]
    with pytest.raises(ValueError, match=f"{name}: expected finite numbers"):
        getattr(ops, name)(*arguments)


WRONG_TYPES = {
    "einsum": (lambda: ops.einsum(1.0, np.ones(2)), TypeError, "expected a string"),
    "rearrange": (lambda: ops.rearrange(np.ones((2, 3)), [[1]]), ValueError, "a pattern is made"),
    "scatter_update": (
        lambda: ops.scatter_update(np.ones(3), [[0]], [1.0], 0),
        ValueError,
        "Invalid reduction: 0",
    ),
    "crop_to_window": (
        lambda: ops.image.crop_to_window([[1]], 0, 0, 1, 1, "channels_last"),
        ValueError,
        "rank",
    ),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_arguments_of_another_type(name):
    call, error, text = WRONG_TYPES[name]
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("q", [[0, 101], [2**62], -1])
@pytest.mark.parametrize("name", ["percentile", "nanpercentile"])
def test_percentages_of_a_compiled_function(name, q):
    with pytest.raises(ValueError, match="q is from 0 to 1"):
        keras.jit(lambda x: getattr(ops, name)(x, q))(ops.ones((3,)))


@pytest.mark.parametrize("shape", [[1.5], (2.0, 3), 1.5, "x", [None, 2]])
def test_shapes_are_whole_numbers(shape):
    """1.5 was 1."""
    for call in (
        *(lambda: ops.zeros(shape), lambda: ops.full(shape, 1), lambda: ops.ones(shape)),
        lambda: ops.reshape(np.ones(6), shape),
    ):
        with pytest.raises(TypeError, match="a shape is whole numbers. Received"):
            call()
    assert ops.zeros(np.int64(2)).shape == (2,)
    assert ops.reshape(np.ones(6), np.array([2, -1])).shape == (2, 3)


@pytest.mark.parametrize("name", ["sum", "max", "mean", "all", "var", "count_nonzero", "flip"])
def test_axes_that_are_named_twice(name):
    for axis in ([0, 0], [1, -1]):
        with pytest.raises(ValueError, match="named twice"):
            getattr(ops, name)(np.ones((2, 3)), axis=axis)


@pytest.mark.parametrize("axis", [0.5, "x", [1.0], [None]])
def test_axes_are_whole_numbers(axis):
    """0.5 was 0."""
    with pytest.raises(TypeError, match="An axis is a whole number"):
        ops.sum(np.ones((2, 3)), axis=axis)


@pytest.mark.parametrize("shift", [1.5, "x", [1.0]])
def test_shifts_are_whole_numbers(shift):
    with pytest.raises(TypeError, match="roll: shift and axis are whole numbers"):
        ops.roll(np.arange(4.0), shift, 0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_lengths_beside_infinity_and_nan(dtype):
    x1 = np.array([np.inf, np.nan, -np.inf, np.nan, 3, 0], dtype)
    x2 = np.array([np.nan, -np.inf, 1, 1, 4, 0], dtype)
    received = ops.hypot(x1, x2)
    assert received.dtype == dtype
    np.testing.assert_array_equal(received.numpy(), np.hypot(x1, x2))

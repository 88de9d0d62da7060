"""Products of int8 are formed in integers and summed in int32, exactly."""

from __future__ import annotations

import numpy as np
import pytest

import kerascnn
from kerascnn import ops

MATMULS = {
    "matrices": ((5, 7), (7, 3)),
    "vectors": ((9,), (9,)),
    "rows of a cube": ((2, 3, 65), (65, 33)),
    "batches": ((2, 1, 4, 6), (3, 6, 5)),
    "large": ((130, 516), (516, 68)),
}
EINSUMS = {
    "a dense layer": ("ab,bc->ac", (5, 7), (7, 3)),
    "heads": ("abc,cde->abde", (2, 5, 7), (7, 3, 4)),
    "heads joined": ("abde,dec->abc", (2, 5, 3, 4), (3, 4, 7)),
    "turned": ("abc,dbc->ad", (2, 5, 7), (3, 5, 7)),
    "a sum before": ("abc,cd->ad", (2, 5, 7), (7, 3)),
    "nothing summed": ("ab,cd->abcd", (2, 5), (3, 4)),
    "three": ("ab,bc,cd->ad", (2, 5), (5, 4), (4, 3)),
    "one": ("abc->b", (2, 5, 7)),
}


@pytest.fixture(autouse=True)
def on_device(device):
    with kerascnn.device(device):
        yield


def bytes_of(rng, shape):
    return rng.integers(-128, 128, shape).astype("int8")


@pytest.mark.parametrize("shapes", MATMULS.values(), ids=MATMULS)
def test_matmul(shapes, rng):
    a, b = (bytes_of(rng, shape) for shape in shapes)
    y = ops.matmul(a, b)
    assert y.dtype == "int32"
    np.testing.assert_array_equal(y.numpy(), a.astype("int32") @ b.astype("int32"))


@pytest.mark.parametrize("call", EINSUMS.values(), ids=EINSUMS)
def test_einsum(call, rng):
    equation, *shapes = call
    arrays = [bytes_of(rng, shape) for shape in shapes]
    if equation.count(",") == 2:
        arrays = [x // 16 for x in arrays]  # the sums have to fit into 32 bits
    y = ops.einsum(equation, *arrays)
    assert y.dtype == "int32"
    expected = np.einsum(equation, *(x.astype("int64") for x in arrays))
    np.testing.assert_array_equal(y.numpy(), expected)


def test_other_integers_keep_their_dtype(rng):
    a, b = (rng.integers(-1000, 1000, shape).astype("int32") for shape in ((5, 7), (7, 3)))
    for y in (ops.matmul(a, b), ops.einsum("ab,bc->ac", a, b)):
        assert y.dtype == "int32"
        np.testing.assert_array_equal(y.numpy(), a @ b)


def test_sums_that_vectors_of_16_bits_would_not_hold():
    """Sums of two products of the lowest number saturate if they are formed in 16 bits."""
    a = np.full((3, 1000), -128, "int8")
    b = np.full((1000, 20), -128, "int8")
    assert (ops.matmul(a, b).numpy() == 128 * 128 * 1000).all()


def test_in_a_compiled_function(rng):
    a, b = bytes_of(rng, (6, 130)), bytes_of(rng, (130, 17))
    product = kerascnn.jit(lambda x, y: ops.cast(ops.matmul(x, y), "float32") * 0.5)
    expected = (a.astype("int32") @ b.astype("int32")).astype("float32") * 0.5
    np.testing.assert_array_equal(product(a, b).numpy(), expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "bool"])
@pytest.mark.parametrize("given", ["float32", "bfloat16"])
def test_casts_at_the_end_of_a_compiled_function(given, dtype, rng):
    """The results are those of casts at once, for any numbers, even if other nodes read them."""
    x = (rng.standard_normal(1001) * 60).astype("float32")
    x[::97] = [np.nan, np.inf, -np.inf, 3e9, -3e9, 2.0**31, -129.0, 300.0, 1e20, -0.0, 255.5]
    x = ops.cast(x, given)

    def several(x):
        y = ops.round(x * 1.5)
        integers = ops.cast(y, dtype)
        return integers, ops.cast(y + 1.0, dtype), ops.cast(integers, "float32") * 2.0, y

    def one(x):
        return ops.cast(ops.round(x * 1.5), dtype)

    for function in (one, several):
        at_once, compiled = (f(x) for f in (function, kerascnn.jit(function)))
        pairs = [(at_once, compiled)] if function is one else zip(at_once, compiled, strict=True)
        for first, second in pairs:
            assert first.dtype == second.dtype
            wide = "int64" if "float" not in first.dtype else "float32"
            # This also handles NaN in bfloat16.
            arrays = [x.numpy().astype(wide) for x in (first, second)]
            np.testing.assert_array_equal(*arrays)

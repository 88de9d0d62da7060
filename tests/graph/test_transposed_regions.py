"""Regions may read their inputs transposed, here on a CPU with the limits of a GPU."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from .helpers import Tracer, tensor

pytestmark = pytest.mark.usefixtures("regions")

SWAPPED = [0, 2, 1, 3]


def run(t, outputs, arrays, optimize=True):
    program = t.compile(*outputs, optimize=optimize)
    program.run([tensor(array, array.dtype) for array in arrays])
    return [np.array(output.numpy()) for output in program.outputs()], program.to_string()


def assert_as_op_by_op(t, outputs, arrays, exact=True):
    got, text = run(t, outputs, arrays)
    expected, _ = run(t, outputs, arrays, optimize=False)
    for a, b in zip(got, expected, strict=True):
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            # The sums have few terms, and are rounded to 16 bits once.
            np.testing.assert_allclose(
                a.astype("float64"), b.astype("float64"), rtol=2.0**-7, atol=2.0**-7
            )
    return text


def normal(rng, shape):
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)


def test_scale_before_a_transpose_is_one_kernel_with_it(rng):
    """Attention scales its queries; the kernel does so in the order of the transposed result."""
    t = Tracer()
    x, w = t.input((18, 40), "bfloat16"), t.input((40, 48), "bfloat16", "w")
    heads = t.reshape(t.matmul2(x, w), shape=[2, 9, 6, 8])
    scaled = t.multiply(heads, t.full([], 0.375, "bfloat16"))
    y = t.transpose(scaled, permutation=SWAPPED)
    text = assert_as_op_by_op(t, [y], [normal(rng, (18, 40)), normal(rng, (40, 48))])
    assert "transpose+multiply:" in text and len(text.splitlines()) == 2, text


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("shape", [(2, 6, 9, 8), (3, 4, 4, 16)])
def test_sum_of_what_is_transposed(rng, shape, scaled):
    """A bias' gradient and the gradient that products read come from one region."""
    b, h, time, d = shape
    t = Tracer()
    y = t.transpose(t.input(shape, "bfloat16"), permutation=SWAPPED)
    if scaled:
        y = t.multiply(y, t.full([], 0.375, "bfloat16"))
    y = t.reshape(y, shape=[b * time, h * d])
    total = t.reduce_sum(y, axes=[0], keepdims=False)
    product = t.matmul2(y, t.input((h * d, 3), "bfloat16", "w"))
    arrays = [normal(rng, shape), normal(rng, (h * d, 3))]
    text = assert_as_op_by_op(t, [total, product, y], arrays, exact=False)
    name = "transpose+multiply+reduce_sum" if scaled else "transpose+reduce_sum"
    assert name in text and text.count("transpose") == 1, text


def test_what_a_region_computes_is_not_transposed_within_it(rng):
    """It lies elsewhere by then: a kernel of its own transposes it."""
    t = Tracer()
    x, z = t.input((2, 4, 4, 8), "bfloat16"), t.input((2, 4, 4, 8), "bfloat16", "z")
    y = t.add(t.multiply(x, z), x)
    back = t.transpose(y, permutation=SWAPPED)
    both = t.add(y, t.relu(back))
    arrays = [normal(rng, (2, 4, 4, 8)) for _ in range(2)]
    text = assert_as_op_by_op(t, [both], arrays)
    assert "transpose+relu+add" in text, text


def test_an_input_is_read_transposed_and_in_order(rng):
    t = Tracer()
    x = t.input((2, 4, 4, 8), "bfloat16")
    y = t.subtract(t.relu(x), t.transpose(x, permutation=SWAPPED))
    text = assert_as_op_by_op(t, [y], [normal(rng, (2, 4, 4, 8))])
    assert "relu+transpose+subtract:" in text and len(text.splitlines()) == 1, text


def test_square_inputs_are_not_overwritten(rng):
    """The result of a region that reads elsewhere must not lie in the memory of its input."""
    t = Tracer()
    product = t.matmul2(t.input((32, 8), "bfloat16"), t.input((8, 8), "bfloat16", "w"))
    x = t.reshape(product, shape=[2, 4, 4, 8])
    y = t.negative(t.transpose(x, permutation=SWAPPED))
    z = t.relu(t.transpose(y, permutation=SWAPPED))
    assert_as_op_by_op(t, [z], [normal(rng, (32, 8)), normal(rng, (8, 8))])


@pytest.mark.parametrize(
    ("shape", "permutation"),
    [((2, 3, 4, 8), [0, 1, 3, 2]), ((2, 3, 4, 6), SWAPPED), ((3, 8), [1, 0])],
)
def test_others_keep_their_kernels(rng, shape, permutation):
    t = Tracer()
    y = t.relu(t.transpose(t.input(shape, "bfloat16"), permutation=permutation))
    text = assert_as_op_by_op(t, [y], [normal(rng, shape)])
    assert "transpose+relu" not in text


def test_a_transpose_by_itself_keeps_its_kernel(rng):
    t = Tracer()
    y = t.transpose(t.input((2, 3, 4, 8), "bfloat16"), permutation=SWAPPED)
    flat = t.reshape(y, shape=[8, 24])
    text = assert_as_op_by_op(t, [flat], [normal(rng, (2, 3, 4, 8))])
    assert "transpose" in text and "region" not in text


def test_a_reshape_with_two_readers_of_the_transpose(rng):
    """The transposed value has two shapes, of which a region has one."""
    t = Tracer()
    y = t.transpose(t.input((2, 3, 4, 8), "bfloat16"), permutation=SWAPPED)
    total = t.reduce_sum(t.reshape(y, shape=[8, 24]), axes=[0], keepdims=False)
    assert_as_op_by_op(t, [total, t.relu(y)], [normal(rng, (2, 3, 4, 8))], exact=False)

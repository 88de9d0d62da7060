"""Generated kernels run on the host, and their results are compared with those of their ops."""

from __future__ import annotations

import numpy as np
import pytest

from . import bodies
from .comparing import assert_close, assert_same_bits
from .playing import op_by_op, played, prepared


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("kernels"))


def checked(t, rng, folder, exact=True, grid=None, lane_bits=0, max_width=8):
    arrays = bodies.arrays(t, rng)
    expected = op_by_op(t, arrays)
    t.outputs_specs = [(each.shape, str(each.dtype)) for each in expected]
    got = played(t, t.source(max_width), arrays, folder, grid, lane_bits)
    for is_exact, a, b in zip(
        exact if isinstance(exact, tuple) else (exact,) * len(got), got, expected, strict=True
    ):
        (assert_same_bits if is_exact else assert_close)(a, b)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("columns", [24, 10, 7])
def test_normalization_of_columns(rng, folder, dtype, columns):
    t = bodies.normalized((4, 5, 3, columns), dtype)
    checked(t, rng, folder, grid=(1, 2), lane_bits=1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("domain", [(3, 5, 2, 8), (3, 2, 4, 5), (2, 3, 1, 6)])
def test_every_reading(rng, folder, dtype, domain):
    checked(bodies.every_reading(domain, dtype), rng, folder)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("domain", [(3, 5, 2, 8), (4, 7), (2, 3, 1, 6)])
def test_factors_of_columns(rng, folder, dtype, domain):
    checked(bodies.factors(domain, dtype), rng, folder)


@pytest.mark.parametrize("domain", [(7, 9), (1, 16), (1,), ()])
def test_numbers_of_several_dtypes(rng, folder, domain):
    checked(bodies.numbers(domain), rng, folder)


def test_more_elements_than_a_grid_takes_at_once(rng, folder):
    checked(bodies.activation_gradient((101, 203)), rng, folder, grid=(2, 1))


@pytest.mark.parametrize("max_width", [1, 2, 8])
def test_widths(rng, folder, max_width):
    checked(bodies.activation_gradient(), rng, folder, max_width=max_width)


@pytest.mark.parametrize("domain", [(), (1,), (5,)])
def test_few_elements(rng, folder, domain):
    checked(bodies.constant_domain(domain), rng, folder)


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_batch_norm_gradient(rng, folder, dtype, splits):
    if dtype == "float64":
        t = bodies.batch_norm_gradient((3, 70, 6), "float32")
    else:
        t = bodies.batch_norm_gradient((4, 90, 48), dtype)
    checked(t, rng, folder, (True, False, False, False), grid=(1, splits), lane_bits=1)


@pytest.mark.parametrize("dtype", ["int32", "float16", "float64"])
@pytest.mark.parametrize("domain", [(40, 3), (1, 5), (1030, 1)])
def test_column_sums(rng, folder, dtype, domain):
    checked(bodies.column_sums(domain, dtype), rng, folder, dtype == "int32", grid=(1, 2))


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_moments(rng, folder, dtype, splits):
    checked(bodies.moments((1100, 10), dtype), rng, folder, False, grid=(1, splits), lane_bits=1)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("domain", [(5, 6, 10), (7, 4, 2), (1, 2), (2, 1500)])
def test_results_of_rows_broadcast_to_elements(rng, folder, dtype, domain):
    checked(bodies.broadcast_rows(domain, dtype), rng, folder, False)


@pytest.mark.parametrize("lane_bits", [1, 3, 5])
@pytest.mark.parametrize("make", [bodies.column_sums, bodies.moments])
def test_more_splits_than_a_thread_adds_up_at_once(rng, folder, make, lane_bits):
    """The last block adds up the results of 70 splits, the last of which has one row."""
    t = make((70 * 3 - 2, 24), "bfloat16")
    checked(t, rng, folder, False, grid=(1, 70), lane_bits=lane_bits)


def test_sums_of_several_sizes_share_a_workspace(rng, folder):
    t = bodies.traced("columns", (150, 12))
    x, n = t.input(t.domain, "float32"), t.input(t.domain, "int32")
    over = {"axes": [0], "keepdims": False}
    t.outputs = [
        t("reduce_sum", x, **over),
        t("reduce_sum", n, **over),
        *t("column_moments", t.cast(x, "float64")),
        *t("column_moments", x),
        t("reduce_mean", t.cast(x, "float64"), **over),
    ]
    exact = (False, True, *[False] * 5)
    checked(t, rng, folder, exact, grid=(1, 7), lane_bits=1)


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("domain", "first", "last"),
    [((3, 150, 24), 1, 1), ((2, 2, 31, 10), 2, 1), ((5, 9, 4, 3), 1, 2), ((7, 6, 3), 0, 2)],
)
def test_sums_of_parts(rng, folder, dtype, splits, domain, first, last):
    t = bodies.sums_of_parts(domain, dtype, first, last)
    checked(t, rng, folder, (False, True, False), grid=(1, splits), lane_bits=1)


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize(("domain", "outer_axes"), [((3, 150, 10), 1), ((2, 3, 65, 7), 2)])
def test_moments_of_parts(rng, folder, dtype, splits, domain, outer_axes):
    t = bodies.moments_of_parts(domain, dtype, outer_axes)
    checked(t, rng, folder, False, grid=(1, splits), lane_bits=1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("domain", [(3, 520, 16), (2, 27, 21, 10), (5, 7, 8)])
def test_maps_of_parts(rng, folder, dtype, domain):
    t = bodies.normalized_parts(domain, dtype)
    # A part of few elements is not worth blocks of its own.
    assert t.source().parts == (1 if domain[1] == 7 else domain[0])
    checked(t, rng, folder, grid=(1, 2), lane_bits=1)


@pytest.mark.parametrize("splits", [1, 9])
def test_moments_far_from_zero(rng, folder, splits):
    """Deviations are a thousandth of the mean and must keep the digits that float32 allows."""
    t = bodies.moments((2000, 16), "float32")
    t.outputs_specs = [((16,), "float32")] * 2
    x = (rng.standard_normal((2000, 16)) * 0.1 + 100).astype("float32")
    mean, variance = played(t, t.source(), [x], folder, (1, splits), 1)
    wide = x.astype("float64")
    # The mean of about 100 is rounded a few times. Its square must not spoil the variance.
    np.testing.assert_allclose(mean, wide.mean(0), rtol=4 * 2.0**-24)
    np.testing.assert_allclose(variance, wide.var(0), rtol=1e-5)


@pytest.mark.parametrize("splits", [1, 9])
def test_moments_of_an_outlier_in_the_first_row(rng, folder, splits):
    """A thread sums differences from its first row, which lies far from all the others here."""
    t = bodies.moments((2000, 16), "float32")
    t.outputs_specs = [((16,), "float32")] * 2
    x = rng.standard_normal((2000, 16)).astype("float32")
    x[0] = 1e4
    mean, variance = played(t, t.source(), [x], folder, (1, splits), 1)
    wide = x.astype("float64")
    # The threads of this row have at most 2000 rows: so many squares are added, each sum is rounded
    # by 2^-24 of itself, and what cancels is no larger than they.
    np.testing.assert_allclose(variance, wide.var(0), rtol=2 * 2000 * 2.0**-24)
    np.testing.assert_allclose(mean, wide.mean(0), atol=2000 * 2.0**-24 * 1e4 / 2000 * 4)


def test_moments_of_large_numbers(rng, folder):
    """Threads without rows must add nothing, even where a square of the mean would overflow."""
    t = bodies.moments((300, 16), "float32")
    t.outputs_specs = [((16,), "float32")] * 2
    x = np.full((300, 16), 1e30, "float32")
    mean, variance = played(t, t.source(), [x], folder, (1, 4), 1)
    np.testing.assert_array_equal(mean, x[0])
    np.testing.assert_array_equal(variance, 0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("kind", ["map", "rows", "columns"])
@pytest.mark.parametrize("domain", [(9, 32), (2, 5, 7), (31, 6)])
def test_dropout(rng, folder, domain, kind, dtype):
    t = bodies.dropped(domain, dtype, kind)
    checked(t, rng, folder, (True, True, False)[: len(t.outputs)])


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_dropout_of_all_and_of_none(rng, folder, rate):
    checked(bodies.dropped((7, 12), "bfloat16", rate=rate), rng, folder)


@pytest.mark.parametrize("columns", [48, 37, 2, 384, 1030, 2056])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_layer_normalization(rng, folder, columns, dtype):
    rows = 37 if columns < 100 else 5
    checked(bodies.layer_norm((rows, 2, columns), dtype), rng, folder, False)


def test_rows_over_two_axes(rng, folder):
    checked(bodies.layer_norm((4, 3, 5, 6), "float32", axes=2), rng, folder, False)


@pytest.mark.parametrize("domain", [(12, 48), (70, 33)])
def test_layer_normalization_gradient(rng, folder, domain):
    checked(bodies.layer_norm_gradient(domain), rng, folder, False)


@pytest.mark.parametrize("domain", [(9, 37), (3, 2, 5, 197), (2, 20000)])
@pytest.mark.parametrize("masked", [False, True])
def test_softmax(rng, folder, domain, masked):
    checked(bodies.softmax(domain, masked=masked), rng, folder, False)


@pytest.mark.parametrize("domain", [(2, 3, 5, 196), (1, 2, 3, 52), (2, 1, 4, 197)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_softmax_of_attention(rng, folder, domain, dtype):
    checked(bodies.attention_softmax(domain, dtype, rate=0.2), rng, folder, False)


@pytest.mark.parametrize("domain", [(70, 196), (3, 100)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_softmax_gradient_of_attention(rng, folder, domain, dtype):
    checked(bodies.attention_softmax_gradient(domain, dtype), rng, folder, False)


@pytest.mark.parametrize("domain", [(2, 5, 3, 24), (1, 7, 2, 8), (3, 4, 4, 16)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("kind", ["map", "rows"])
def test_transposed_inputs(rng, folder, domain, dtype, kind):
    checked(bodies.transposed(domain, dtype, kind), rng, folder, lane_bits=1)


@pytest.mark.parametrize("domain", [(2, 65, 3, 24), (5, 1, 2, 8), (1, 9, 1, 16), (3, 7, 7, 8)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("stored", [True, False])
def test_sums_of_transposed_inputs(rng, folder, domain, dtype, stored):
    t = bodies.transposed_sums(domain, dtype, stored)
    checked(t, rng, folder, (False, True, True)[: len(t.outputs)], grid=(1, 2), lane_bits=1)


@pytest.mark.parametrize("domain", [(6, 45), (300, 4)])
def test_integer_rows(rng, folder, domain):
    checked(bodies.integer_rows(domain), rng, folder, grid=(2, 1))

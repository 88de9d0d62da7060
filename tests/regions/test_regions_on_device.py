"""On every device regions of all kinds are compared with their ops one by one."""

from __future__ import annotations

import numpy as np
import pytest

from kerascnn import _core, ops

from . import bodies
from .comparing import assert_close, assert_same_bits


@pytest.fixture(autouse=True)
def small_regions_too(monkeypatch):
    """Gives each region a kernel of its own on a GPU, however small the region is."""
    monkeypatch.setenv("KERASCNN_CUDA_REGIONS", "2")


def run(graph, outputs, arrays, device):
    program = _core.Program.compile(graph, outputs, device, optimize=False)
    tensors = [_core.from_numpy(array, device) for array in arrays]
    program.run(tensors)
    first = [np.array(output.numpy()) for output in program.outputs()]
    program.run(tensors, 3)
    for again, once in zip(program.outputs(), first, strict=True):
        assert_same_bits(np.array(again.numpy()), once)
    return program, first


def as_region(t):
    """Makes a graph of one node, which owns the traced graph."""
    graph = _core.Graph()
    inputs = [graph.input(f"x{i}", list(shape), dtype) for i, (shape, dtype) in enumerate(t.specs)]
    attributes = {
        "bodies": [t.body()],
        "kind": t.kind,
        "domain": list(t.domain),
        "columns": t.columns,
        "outer": t.outer,
    }
    return graph, graph.apply("region", inputs, attributes)


def checked(t, rng, device, exact=True):
    arrays = bodies.arrays(t, rng)
    _, expected = run(t.graph, t.outputs, arrays, device)
    program, got = run(*as_region(t), arrays, device)
    if device != "cpu":
        assert f"kerascnn generated {t.kind}" in program.to_string()
    elif t.kind != "map" and "op by op" not in program.to_string():
        assert "kerascnn region" in program.to_string()
    exact = exact if isinstance(exact, tuple) else (exact,) * len(got)
    for is_exact, a, b in zip(exact, got, expected, strict=True):
        (assert_same_bits if is_exact else assert_close)(a, b)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("columns", [256, 48, 7, 1, 10])
def test_normalization(rng, device, dtype, columns):
    checked(bodies.normalized((3, 17, 13, columns), dtype), rng, device)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("domain", [(5, 6, 10), (7, 4, 2), (1, 2), (2, 1500)])
def test_results_of_rows_broadcast_to_elements(rng, device, dtype, domain):
    checked(bodies.broadcast_rows(domain, dtype), rng, device, False)


@pytest.mark.parametrize("rows", [1, 65_536, 70_001])
def test_many_rows(rng, device, rows):
    checked(bodies.normalized((rows, 8), "bfloat16"), rng, device)
    checked(bodies.normalized((rows, 3), "float32"), rng, device)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("domain", "first", "last"),
    [((3, 3136, 64), 1, 1), ((2, 2, 310, 10), 2, 1), ((5, 90, 40, 3), 1, 2), ((9, 600, 7), 0, 2)],
)
def test_sums_of_parts(rng, device, dtype, domain, first, last):
    checked(bodies.sums_of_parts(domain, dtype, first, last), rng, device, (False, True, False))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("domain", "outer_axes"), [((32, 900, 96), 1), ((2, 3, 1650, 7), 2), ((300, 9, 1), 1)]
)
def test_moments_of_parts(rng, device, dtype, domain, outer_axes):
    checked(bodies.moments_of_parts(domain, dtype, outer_axes), rng, device, False)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("domain", [(32, 900, 96), (7, 27, 21, 10), (5, 7, 8)])
def test_maps_of_parts(rng, device, dtype, domain):
    checked(bodies.normalized_parts(domain, dtype), rng, device)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("domain", [(3, 5, 2, 8), (3, 2, 4, 5), (33, 14, 9, 64)])
def test_every_reading(rng, device, dtype, domain):
    checked(bodies.every_reading(domain, dtype), rng, device)


@pytest.mark.parametrize("domain", [(7, 9), (1, 16), (1,), (), (333, 257)])
def test_numbers_of_several_dtypes(rng, device, domain):
    checked(bodies.numbers(domain), rng, device)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_functions_of_analysis(rng, device, dtype):
    """Long functions follow one another, and none may take another's product into its sums."""
    checked(bodies.activations((41, 67), dtype), rng, device)


@pytest.mark.parametrize("domain", [(40, 16), (5, 7, 30), (1, 5), (1, 1), (70_001, 6)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_batch_norm_gradient(rng, device, dtype, domain):
    t = bodies.batch_norm_gradient(domain, dtype)
    checked(t, rng, device, (True, False, False, False))


@pytest.mark.parametrize("dtype", ["int32", "float16", "float64", "float32"])
@pytest.mark.parametrize("domain", [(40, 3), (1, 5), (30_001, 1), (3, 4096), (20_000, 64)])
def test_column_sums(rng, device, dtype, domain):
    checked(bodies.column_sums(domain, dtype), rng, device, dtype == "int32")


@pytest.mark.parametrize("domain", [(1, 3), (1100, 10), (9_001, 64), (70, 2048)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_moments(rng, device, dtype, domain):
    checked(bodies.moments(domain, dtype), rng, device, False)


@pytest.mark.parametrize("columns", [48, 37, 2, 384, 1000, 1030, 2056, 30_000])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_layer_normalization(rng, device, columns, dtype):
    checked(bodies.layer_norm((7, 3, columns), dtype), rng, device, False)


@pytest.mark.parametrize("domain", [(12, 48), (70, 33), (65_537, 8), (9, 5000)])
def test_layer_normalization_gradient(rng, device, domain):
    checked(bodies.layer_norm_gradient(domain), rng, device, False)


@pytest.mark.parametrize("domain", [(9, 37), (3, 2, 5, 197), (2, 20000), (70, 1000), (300, 2)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_softmax(rng, device, domain, masked, dtype):
    checked(bodies.softmax(domain, dtype, masked), rng, device, False)


def test_rows_over_two_axes(rng, device):
    checked(bodies.layer_norm((4, 3, 5, 6), "float32", axes=2), rng, device, False)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("domain", [(3, 5, 2, 8), (33, 14, 9, 64), (41, 7), (5, 1030), (70_001, 2)])
@pytest.mark.parametrize("kind", ["map", "rows", "columns"])
def test_dropout(rng, device, kind, domain, dtype):
    exact = (True, True, False)[: 3 if kind == "columns" else 2]
    checked(bodies.dropped(domain, dtype, kind), rng, device, exact)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_dropout_of_all_and_of_none(rng, device, rate):
    checked(bodies.dropped((40, 6), "float32", rate=rate), rng, device)


@pytest.mark.parametrize("domain", [(6, 45), (300, 4), (3, 3000)])
def test_integer_rows(rng, device, domain):
    checked(bodies.integer_rows(domain), rng, device)


def test_nan_and_infinity(rng, device):
    t = bodies.softmax((40, 300))
    (array,) = bodies.arrays(t, rng)
    array[3, 7], array[5, 100], array[8, :] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        _, expected = run(t.graph, t.outputs, [array], device)
        _, got = run(*as_region(t), [array], device)
    np.testing.assert_array_equal(np.isnan(got[0]), np.isnan(expected[0]))
    assert np.isnan(got[0][[3, 5, 8]]).all()
    assert not np.isnan(got[0][[0, 1, 2, 4]]).any()


@pytest.mark.parametrize("width", [24, 40])
def test_more_values_than_registers(rng, device, width):
    """All values are needed at the end: the compiler spills unless threads take fewer elements."""
    t = bodies.traced("map", (130, 64))
    x = t.input(t.domain, "bfloat16")
    terms = [t("tanh", t("multiply", x, t.input((64,), "bfloat16"))) for _ in range(width - 2)]
    while len(terms) > 1:
        terms = [t("add", a, b) for a, b in zip(terms[::2], terms[1::2], strict=False)] + (
            [terms[-1]] if len(terms) % 2 else []
        )
    t.outputs = terms
    checked(t, rng, device)


# Rows have 8 elements. The GPU's test has more than 2^31 elements, and the CPU's has fewer.
BLOCK_ROWS = 2**20 + 1


def repeated(t, arrays, device, count):
    """Returns the results of a region with one block of rows, and with `count` such blocks."""
    tensors = [_core.from_numpy(array, device) for array in arrays]
    small = _core.Program.compile(*as_region(t(BLOCK_ROWS)), device, optimize=False)
    small.run(tensors)
    large = _core.Program.compile(*as_region(t(BLOCK_ROWS * count)), device, optimize=False)
    large.run([ops.tile(x, (count, 1)) if x.shape[0] == BLOCK_ROWS else x for x in tensors])
    return small.outputs(), large.outputs()


@pytest.mark.parametrize("kind", ["map", "rows", "columns"])
def test_more_elements_than_32_bits_count(rng, device, kind):
    count = 3 if device == "cpu" else 257
    make = {
        "map": lambda rows: bodies.normalized((rows, 8), "bfloat16", residual=False),
        "rows": lambda rows: bodies.layer_norm((rows, 8), "bfloat16"),
        "columns": lambda rows: bodies.moments((rows, 8), "bfloat16"),
    }[kind]
    small, large = repeated(make, bodies.arrays(make(BLOCK_ROWS), rng), device, count)
    for one, all_of_them in zip(small, large, strict=True):
        if kind == "columns":
            # The mean is the same, but a thread adds up tens of thousands of terms of size 1 in
            # order. Its rounding error is below 256 units of 2^-24.
            np.testing.assert_allclose(all_of_them.numpy(), one.numpy(), rtol=2e-5, atol=2e-5)
            continue
        for first in (0, count // 2, count - 1):
            rows = slice(first * BLOCK_ROWS, (first + 1) * BLOCK_ROWS)
            assert_same_bits(np.array(all_of_them[rows].numpy()), np.array(one.numpy()))


@pytest.mark.parametrize("domain", [(9, 4, 3, 196), (5, 52), (3, 2, 7, 332), (11, 197)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_softmax_of_attention(rng, device, domain, dtype):
    checked(bodies.attention_softmax(domain, dtype, rate=0.2), rng, device, False)
    checked(bodies.attention_softmax_gradient(domain, dtype), rng, device, False)


@pytest.mark.parametrize("domain", [(2, 5, 3, 24), (33, 14, 6, 64), (3, 4, 4, 16)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("kind", ["map", "rows"])
def test_transposed_inputs(rng, device, domain, dtype, kind):
    checked(bodies.transposed(domain, dtype, kind), rng, device)


@pytest.mark.parametrize("domain", [(2, 65, 3, 24), (33, 140, 6, 64), (1, 9, 1, 16)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_sums_of_transposed_inputs(rng, device, domain, dtype):
    checked(bodies.transposed_sums(domain, dtype), rng, device, (False, True, True))


@pytest.mark.parametrize("domain", [(25_088, 384), (1_300, 256), (9_000, 2048)])
def test_sums_and_moments_of_many_splits(rng, device, domain):
    """A GPU runs so many splits at once that each thread of a last block adds up several."""
    checked(bodies.column_sums(domain, "bfloat16"), rng, device, False)
    checked(bodies.moments(domain, "bfloat16"), rng, device, False)
    checked(bodies.batch_norm_gradient(domain, "bfloat16"), rng, device, (True, *[False] * 3))

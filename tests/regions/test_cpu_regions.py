"""Regions on a CPU have tiles, pieces of rows, and blocks of sums, which only these tests cover."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kerascnn import _core

from . import bodies
from .comparing import assert_same_bits
from .test_regions_on_device import as_region, run

TESTS = Path(__file__).resolve().parents[1]


def results(t, arrays):
    return run(*as_region(t), arrays, "cpu")[1]


@pytest.mark.parametrize("domain", [(700, 1), (9_001, 3), (4_097, 64), (130, 513), (40, 1100)])
@pytest.mark.parametrize("offset", [0.0, 3e4])
def test_moments_against_float64(rng, domain, offset):
    """The mean may be far larger than the deviation, and its square must not cost any digits."""
    x = (rng.standard_normal(domain) + offset).astype("float32")
    mean, variance = results(bodies.moments(domain, "float32"), [x])
    wide = x.astype("float64")
    # The sums are float64, so only the last rounding is left.
    np.testing.assert_allclose(mean, wide.mean(axis=0), rtol=2.0**-23, atol=2.0**-24)
    np.testing.assert_allclose(variance, wide.var(axis=0), rtol=2.0**-22)


def test_moments_of_an_outlier_in_the_first_row(rng):
    x = rng.standard_normal((3_000, 20)).astype("float32")
    x[0] = 1e6
    _, variance = results(bodies.moments(x.shape, "float32"), [x])
    np.testing.assert_allclose(variance, x.astype("float64").var(axis=0), rtol=2.0**-22)


@pytest.mark.parametrize("place", [0, 5, 2_999])
def test_moments_of_numbers_that_are_not_finite(rng, place):
    x = rng.standard_normal((3_000, 5)).astype("float32")
    x[place, 1], x[place, 2], x[place, 3] = np.inf, -np.inf, np.nan
    mean, variance = results(bodies.moments(x.shape, "float32"), [x])
    np.testing.assert_array_equal(mean[1:4], [np.inf, -np.inf, np.nan])
    assert np.isnan(variance[1:4]).all()
    assert np.isfinite(mean[[0, 4]]).all() and np.isfinite(variance[[0, 4]]).all()


@pytest.mark.parametrize("columns", [8_192, 8_193, 20_000])
def test_long_rows_against_float64(rng, columns):
    x = rng.standard_normal((3, columns)).astype("float32")
    (softmax,) = results(bodies.softmax(x.shape, "float32"), [x])
    e = np.exp(x.astype("float64") - x.max(axis=1, keepdims=True))
    # The difference is rounded to 2^-24 of a number below 16 twice; exp and division round once
    # each.
    np.testing.assert_allclose(softmax, e / e.sum(axis=1, keepdims=True), rtol=2.0**-19)


def step_body():
    """Returns a map with more inputs than a ready-made kernel takes."""
    t = bodies.traced("map", (70, 90))
    x = t.input(t.domain)
    for axis_shape in [(90,), (70, 1), (), (70, 90)] * 3:
        x = t("add", t("tanh", x), t.input(axis_shape))
    t.outputs = [x, t("relu", x)]
    return t


def test_large_maps(rng):
    t = step_body()
    arrays = bodies.arrays(t, rng)
    program, own = run(*as_region(t), arrays, "cpu")
    assert "kerascnn region" in program.to_string()
    for a, b in zip(own, run(t.graph, t.outputs, arrays, "cpu")[1], strict=True):
        assert_same_bits(a, b)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("domain", [(7, 9), (70, 90), (3, 5_000)])
def test_integers_that_are_loaded_and_stored_as_floats(rng, dtype, domain):
    """No register of 64-bit integers lies between, unless something else reads it."""
    t = bodies.traced("map", domain)
    image, row = t.input(domain, dtype), t.input(domain[-1:], dtype)
    x = t.input(domain)
    rows = t("broadcast_to", row, shape=list(domain))
    wide = t("add", t("multiply", t.cast(image, "float32"), x), t.cast(rows, "float32"))
    narrow = t.cast(t("negative", wide), dtype)
    t.outputs = [t.cast(wide, dtype), wide, t("equal", narrow, image), narrow]
    arrays = bodies.arrays(t, rng)
    arrays[2].flat[:5] = [np.nan, np.inf, -np.inf, 3e9, -3e9]
    program, own = run(*as_region(t), arrays, "cpu")
    assert "kerascnn region" in program.to_string()
    for a, b in zip(own, run(t.graph, t.outputs, arrays, "cpu")[1], strict=True):
        assert_same_bits(a, b)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["map", "rows"])
def test_what_was_rounded_to_16_bits_lies_in_an_output_of_32(rng, kind, dtype):
    t = bodies.traced(kind, (40, 300))
    x = t.input(t.domain)
    wide = t.cast(t.cast(t("multiply", x, x), dtype), "float32")
    t.outputs = [wide]
    if kind == "rows":
        t.outputs.append(t("reduce_max", wide, axes=[1], keepdims=True))
    arrays = bodies.arrays(t, rng)
    own = results(t, arrays)
    for a, b in zip(own, run(t.graph, t.outputs, arrays, "cpu")[1], strict=True):
        assert_same_bits(a, b)


@pytest.mark.parametrize("first", [0, 1])
def test_a_map_writes_over_its_inputs(rng, first):
    """An output has the memory of an input that other outputs are computed from."""
    shape = (30, 200)
    before = [rng.standard_normal(shape).astype("float32") for _ in range(3)]
    a = _core.Variable("a", _core.from_numpy(before[0], "cpu"))
    b = _core.Variable("b", _core.from_numpy(before[1], "cpu"))
    graph = _core.Graph()
    x = graph.input("x", shape, "float32")
    read_a, read_b = graph.read(a), graph.read(b)
    total = graph.apply("add", [graph.apply("multiply", [read_a, x], {})[0], read_b], {})[0]
    apart = graph.apply("subtract", [read_a, total], {})[0]
    for variable, value in [(a, total), (b, apart)][:: 1 if first == 0 else -1]:
        graph.assign(variable, value)
    program = _core.Program.compile(graph, [], "cpu")
    assert "kerascnn region" in program.to_string()
    program.run([_core.from_numpy(before[2], "cpu")])
    expected = before[0] * before[2] + before[1]
    np.testing.assert_array_equal(a.value.numpy(), expected)
    np.testing.assert_array_equal(b.value.numpy(), before[0] - expected)


def test_a_value_of_the_domain_beside_column_sums(rng):
    """The pieces of a column's values do not lie side by side in memory."""
    t = bodies.batch_norm_gradient((50, 1100), "float32")
    arrays = bodies.arrays(t, rng)
    own, plain = results(t, arrays), run(t.graph, t.outputs, arrays, "cpu")[1]
    assert_same_bits(own[0], plain[0])
    g, y, x, mean, inverse = (array.astype("float64") for array in arrays)
    g = np.where(y > 0, g, 0)
    # Each way adds the rows in an order of its own. No order errs by more than half a unit in the
    # last place of the sum of magnitudes, for each row. Both ways round the terms themselves alike.
    for a, b, terms in zip(own[1:], plain[1:], [g, g * (x - mean) * inverse, g / 50], strict=True):
        bound = 2 * 50 * 2.0**-24 * np.abs(terms).sum(axis=0)
        assert np.all(np.abs(a - b) <= bound)


def digest():
    """Returns a hash of some regions' results; the environment sets the number of threads."""
    rng = np.random.default_rng(4)
    text = hashlib.sha256()
    for t in (
        bodies.moments((40_001, 7), "float32"),
        bodies.batch_norm_gradient((3_000, 65), "bfloat16"),
        bodies.layer_norm((401, 3, 100), "float32"),
        bodies.softmax((9, 20_000), "float32"),
    ):
        for array in results(t, bodies.arrays(t, rng)):
            text.update(array.tobytes())
    return text.hexdigest()


def test_any_number_of_threads_gives_the_same_bits():
    code = "from regions.test_cpu_regions import digest; print(digest())"
    # The folder above has a `kerascnn` without a compiled core, which would hide an installed
    # package.
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    found = set()
    for threads in (1, 2, 3):
        variables = {
            "KERASCNN_NUM_THREADS": str(threads),
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": path,
        }
        answer = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | variables,
            cwd=TESTS,
            check=True,
            capture_output=True,
            text=True,
        )
        found.add(answer.stdout.strip())
    assert len(found) == 1

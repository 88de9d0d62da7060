"""These tests check what rows cannot say: ties, optional outputs, statistics, repeatability."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kerascnn import _core

from . import harness
from .cases import CASES
from .harness import run_eager, run_program
from .reference_random import philox_words


def apply(op, inputs, attributes, device="cpu"):
    tensors = harness.to_device([np.asarray(x) for x in inputs], device)
    return [np.array(y.numpy()) for y in _core.apply(op, tensors, attributes)]


def gradient(op, inputs, attributes, device):
    """Returns d sum(output 0) / d inputs."""
    graph = _core.Graph()
    values = [graph.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(inputs)]
    y = graph.apply(op, values, attributes)[0]
    loss = graph.apply("reduce_sum", [y], {"axes": [], "keepdims": False})[0]
    program = _core.Program.compile(graph, graph.gradients(loss, values), device)
    program.run(harness.to_device(inputs, device))
    return [np.array(g.numpy()) for g in program.outputs()]


@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_equal_elements_share_the_gradient(op, device):
    a, b = np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])
    ga, gb = gradient(op, [a, b], {}, device)
    wins = [0.5, 0.0, 1.0] if op == "maximum" else [0.5, 1.0, 0.0]
    np.testing.assert_array_equal(ga, wins)
    np.testing.assert_array_equal(gb, 1 - np.array(wins))


@pytest.mark.parametrize(("op", "sign"), [("reduce_max", 1), ("reduce_min", -1)])
def test_equal_extremes_share_the_gradient(op, sign, device):
    x = sign * np.array([[2.0, 5.0, 5.0], [1.0, 1.0, 1.0]])
    (gx,) = gradient(op, [x], {"axes": [1], "keepdims": False}, device)
    np.testing.assert_allclose(gx, [[0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3]], rtol=1e-15)


def test_gradients_at_the_limits(device):
    x = np.array([-1.0, 0.0, 1.0, 2.0, 3.0])
    (clip,) = gradient("clip", [x], {"min": 0.0, "max": 2.0}, device)
    np.testing.assert_array_equal(clip, [0, 1, 1, 1, 0])
    (relu,) = gradient("relu", [x], {}, device)
    np.testing.assert_array_equal(relu, [0, 0, 1, 1, 1])
    (clipped,) = gradient("clipped_relu", [x], {"max_value": 2.0}, device)
    np.testing.assert_array_equal(clipped, [0, 0, 1, 0, 0])


@pytest.mark.parametrize(("approximate", "tolerance"), [(False, 2e-5), (True, 1e-4)])
def test_gelu_keeps_its_digits_where_it_is_small(approximate, tolerance, device):
    """The error is relative to gelu. In its tail, u times the rounding of u (up to 100) counts."""
    x = np.linspace(-10.0, -0.01, 5001).astype(np.float32)
    wide = x.astype(np.float64)
    if approximate:
        wanted = wide / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    else:
        wanted = np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in wide])
    normal = np.abs(wanted) > 2 * np.finfo(np.float32).tiny
    (y,) = apply("gelu", [x], {"approximate": approximate}, device)
    np.testing.assert_allclose(y[normal], wanted[normal], rtol=tolerance)


def test_power_gradient_at_zero(device):
    a, b = np.array([0.0, 0.0, 0.0, 2.0]), np.array([0.0, 1.0, 2.0, 0.0])
    ga, gb = gradient("power", [a, b], {}, device)
    np.testing.assert_array_equal(ga, [0, 1, 0, 0])
    np.testing.assert_allclose(gb, [0, 0, 0, np.log(2.0)], rtol=1e-15)


def test_where_stops_the_gradient_of_what_it_hides(device):
    """The hidden branch divides by zero, and 0 times its gradient must not become NaN."""
    condition = np.array([True, False])
    a, b = np.array([1.0, np.inf]), np.array([np.nan, 2.0])
    graph = _core.Graph()
    values = [
        graph.input(n, (2,), d) for n, d in (("c", "bool"), ("a", "float64"), ("b", "float64"))
    ]
    y = graph.apply("where", values, {})[0]
    loss = graph.apply("reduce_sum", [y], {"axes": [], "keepdims": False})[0]
    program = _core.Program.compile(graph, graph.gradients(loss, values[1:]), device)
    program.run(harness.to_device([condition, a, b], device))
    ga, gb = (np.array(g.numpy()) for g in program.outputs())
    np.testing.assert_array_equal(ga, [1, 0])
    np.testing.assert_array_equal(gb, [0, 1])


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.op == "max_pool2d" and not c.large], ids=str
)
def test_max_pool2d_without_its_index(case, device, rng):
    inputs, attributes = harness.draw(case, rng, "float32")
    both = run_eager(case, inputs, attributes, device)
    for optimize in (True, False):
        (alone,) = run_program(case, inputs, attributes, device, optimize=optimize, num_outputs=1)
        np.testing.assert_array_equal(alone, both[0])


@pytest.mark.parametrize("which", [1, 2, 3])
def test_batch_norm_statistics_alone_have_gradients(which, device, rng):
    """The loss is the sum of the batch's means, variances, or reciprocal deviations."""
    x = rng.standard_normal((4, 2))
    graph = _core.Graph()
    value = graph.input("x", x.shape, "float64")
    scale = [graph.input(name, (2,), "float64") for name in ("gamma", "beta")]
    outputs = graph.apply("batch_norm", [value, *scale], {"epsilon": 1e-3})
    loss = graph.apply("reduce_sum", [outputs[which]], {"axes": [], "keepdims": False})[0]
    (gradient,) = graph.gradients(loss, [value])
    program = _core.Program.compile(graph, [gradient], device)
    program.run(harness.to_device([x, np.ones(2), np.zeros(2)], device))
    (found,) = program.outputs()
    centered = x - x.mean(0)
    deviation = np.sqrt(x.var(0) + 1e-3)
    expected = [np.full(x.shape, 1 / 4), centered / 2, -centered / 4 / deviation**3][which - 1]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-14)


REPEATABLE = [
    case for case in CASES if case.op in
    ("conv2d", "conv2d_dgrad", "conv2d_wgrad", "matmul", "dense", "reduce_sum", "gather_grad",
     "batch_norm", "batch_norm_grad", "avg_pool2d_grad", "max_pool2d_grad")
    and "float32" in case.dtypes
]  # fmt: skip


@pytest.mark.parametrize("case", REPEATABLE, ids=str)
def test_the_same_call_gives_the_same_bits(case, device, rng):
    inputs, attributes = harness.draw(case, rng, "float32")
    first = run_eager(case, inputs, attributes, device)
    for _ in range(3):
        for again, wanted in zip(run_eager(case, inputs, attributes, device), first, strict=True):
            np.testing.assert_array_equal(again, wanted)


# ---- random numbers ----


def state(rng):
    return rng.integers(0, 2**62, 2)


def test_philox_reference_gives_the_published_words():
    """The Random123 distribution publishes these words for key and counter 0."""
    words = philox_words(np.array([0, 0]), 0, 4)
    assert [hex(int(word)) for word in words] == [
        "0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_is_bit_exact(dtype, device, rng):
    attributes = {"shape": [10_001], "dtype": dtype, "minval": 0.0, "maxval": 1.0, "stream": 5}
    s = state(rng)
    (actual,) = apply("random_uniform", [s], attributes, device)
    words = philox_words(s, 5, 10_001)
    unit = words * 2.0**-32 if dtype == "float64" else (words >> np.uint64(8)) * 2.0**-24
    np.testing.assert_array_equal(actual, unit.astype(dtype))
    assert actual.min() >= 0
    assert actual.max() < 1


N = 400_000


def test_uniform_is_uniform(device, rng):
    attributes = {"shape": [N], "dtype": "float32", "minval": -1.0, "maxval": 3.0, "stream": 0}
    x = apply("random_uniform", [state(rng)], attributes, device)[0].astype(np.float64)
    # The bounds are six standard deviations, so chance fails one run in 1e8.
    assert abs(x.mean() - 1.0) < 6 * np.sqrt(16 / 12 / N)
    counts = np.histogram(x, bins=20, range=(-1, 3))[0]
    assert np.abs(counts - N / 20).max() < 6 * np.sqrt(N / 20)


def test_normal_is_normal(device, rng):
    attributes = {"shape": [N], "dtype": "float32", "mean": 0.0, "stddev": 1.0, "stream": 0}
    x = apply("random_normal", [state(rng)], attributes, device)[0].astype(np.float64)
    assert abs(x.mean()) < 6 / np.sqrt(N)
    assert abs(x.var() - 1) < 6 * np.sqrt(2 / N)
    assert abs((x**3).mean()) < 6 * np.sqrt(15 / N)
    assert abs((x**4).mean() - 3) < 6 * np.sqrt(96 / N)
    # Neighbouring numbers share a block and must be independent.
    for lag in (1, 2, 3):
        assert abs((x[:-lag] * x[lag:]).mean()) < 6 / np.sqrt(N)


def test_streams_and_counters_give_other_numbers(device, rng):
    attributes = {"shape": [1000], "dtype": "float32", "minval": 0.0, "maxval": 1.0, "stream": 1}
    s = state(rng)
    (first,) = apply("random_uniform", [s], attributes, device)
    (advanced,) = apply("random_advance", [s], {"amount": 1}, device)
    np.testing.assert_array_equal(advanced, s + np.array([0, 1]))
    others = [
        apply("random_uniform", [s], {**attributes, "stream": 2}, device)[0],
        apply("random_uniform", [advanced], attributes, device)[0],
        apply("random_uniform", [s + np.array([1, 0])], attributes, device)[0],
    ]
    for other in others:
        assert (other == first).mean() < 0.01
        assert abs(np.corrcoef(other, first)[0, 1]) < 6 / np.sqrt(1000)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_keeps_the_mean_and_its_gradient_the_same_elements(rate, device, rng):
    s, x = state(rng), np.ones(N)
    attributes = {"rate": rate, "stream": 9}
    (y,) = apply("dropout", [x, s], attributes, device)
    assert abs((y != 0).mean() - (1 - rate)) < 6 * np.sqrt(rate * (1 - rate) / N)
    graph = _core.Graph()
    value, state_value = graph.input("x", x.shape, "float64"), graph.input("s", (2,), "int64")
    z = graph.apply("dropout", [value, state_value], attributes)[0]
    loss = graph.apply("reduce_sum", [z], {"axes": [], "keepdims": False})[0]
    program = _core.Program.compile(graph, graph.gradients(loss, [value]), device)
    program.run(harness.to_device([x, s], device))
    np.testing.assert_array_equal(np.array(program.outputs()[0].numpy()), y)

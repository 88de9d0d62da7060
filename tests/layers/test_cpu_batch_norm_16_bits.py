"""Batch normalization of 16 bits on a CPU: the casts around it are in its kernels."""

import ml_dtypes
import numpy as np
import pytest

from kerascnn import _core

# Rows of few and of many channels, of which a buffer holds some or one, and more than it holds.
SHAPES = [(5, 7, 3, 19), (300, 64), (9, 11, 256), (3, 4096), (3, 4097), (1, 6)]
EPSILON = 1e-3


def forward(graph, x, gamma, beta, narrow):
    wide = graph.apply("cast", [x], {"dtype": "float32"})[0]
    y, *statistics = graph.apply("batch_norm", [wide, gamma, beta], {"epsilon": EPSILON})
    return [graph.apply("cast", [y], {"dtype": narrow})[0] if narrow else y, *statistics]


def run(graph, results, inputs):
    program = _core.Program.compile(graph, results, "cpu")
    program.run([_core.from_numpy(a, "cpu") for a in inputs])
    found = [t.numpy().astype(np.float64) for t in program.outputs()]
    return found, [call["label"] for call in program.describe()]


def has_cast(ops):
    return any("cast" in op.split("+") for op in ops)


def reference(x, gamma, beta):
    axes = tuple(range(x.ndim - 1))
    mean, variance = x.mean(axes), x.var(axes)
    inverse = 1 / np.sqrt(variance + EPSILON)
    return (x - mean) * inverse * gamma + beta, mean, variance, inverse


def error_of(dtype, values):
    """One rounding to the dtype, and some of float32 at the size of the largest value."""
    eps = 2.0**-24 if dtype == "float32" else float(ml_dtypes.finfo(dtype).eps) / 2
    return 1.01 * eps * np.abs(values) + 20 * 2.0**-24 * np.abs(values).max()


@pytest.mark.parametrize("rounds_result", [True, False])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward(shape, dtype, rounds_result, rng):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    # A mean that is large beside the deviations.
    x = (rng.normal(size=shape) + 10 * rng.normal(size=shape[-1:])).astype(kind)
    gamma, beta = (rng.normal(size=shape[-1]).astype(np.float32) for _ in range(2))
    graph = _core.Graph()
    values = [
        graph.input(n, a.shape, a.dtype.name) for n, a in zip("xgb", (x, gamma, beta), strict=True)
    ]
    results = forward(graph, *values, dtype if rounds_result else "")
    found, ops = run(graph, results, (x, gamma, beta))
    assert ("batch_norm_16_bits" in ops) == (shape[-1] <= 4096)
    assert has_cast(ops) == (shape[-1] > 4096)
    wanted = reference(x.astype(np.float64), gamma.astype(np.float64), beta.astype(np.float64))
    assert (
        np.abs(found[0] - wanted[0]) <= error_of(dtype if rounds_result else "float32", wanted[0])
    ).all()
    for statistic, right in zip(found[1:], wanted[1:], strict=True):
        np.testing.assert_allclose(statistic, right, rtol=2e-6, atol=2e-6 * np.abs(right).max())


@pytest.mark.parametrize("rounds_result", [True, False])
@pytest.mark.parametrize("narrow_gradient", [True, False])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradient(shape, dtype, narrow_gradient, rounds_result, rng):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = (rng.normal(size=shape) + rng.normal(size=shape[-1:])).astype(kind)
    gy = rng.normal(size=shape).astype(kind if narrow_gradient else np.float32)
    wide = x.astype(np.float64)
    _, mean, _, inverse = reference(wide, 1.0, 0.0)
    gamma = rng.normal(size=shape[-1]).astype(np.float32)
    inputs = [gy, x, gamma, mean.astype(np.float32), inverse.astype(np.float32)]
    graph = _core.Graph()
    values = [graph.input(f"v{i}", a.shape, a.dtype.name) for i, a in enumerate(inputs)]
    for i in [0, 1] if narrow_gradient else [1]:
        values[i] = graph.apply("cast", [values[i]], {"dtype": "float32"})[0]
    gx, *sums = graph.apply("batch_norm_grad", values, {})
    if rounds_result:
        gx = graph.apply("cast", [gx], {"dtype": dtype})[0]
    found, ops = run(graph, [gx, *sums], inputs)
    assert ("batch_norm_grad_16_bits" in ops) == (shape[-1] <= 4096)
    assert has_cast(ops) == (shape[-1] > 4096)

    g, normalized = gy.astype(np.float64), (wide - mean) * inverse
    axes = tuple(range(x.ndim - 1))
    beta_sum, gamma_sum = g.sum(axes), (g * normalized).sum(axes)
    scale = np.float64(gamma) * inverse
    wanted = scale * (g - beta_sum / g[..., 0].size - normalized * gamma_sum / g[..., 0].size)
    # Single rows cancel: errors are of the size of what is subtracted.
    size = np.abs(scale).max() * (np.abs(g).max() + np.abs(beta_sum).max())
    error = error_of(dtype if rounds_result else "float32", wanted) + 20 * 2.0**-24 * size
    assert (np.abs(found[0] - wanted) <= error).all()
    np.testing.assert_allclose(
        found[1], gamma_sum, rtol=1e-5, atol=1e-5 * np.abs(g).sum(axes).max()
    )
    np.testing.assert_allclose(found[2], beta_sum, rtol=1e-5, atol=1e-5 * np.abs(g).sum(axes).max())


def test_a_copy_that_others_read_stays(rng):
    """Who reads the float32 copy beside the normalization has it."""
    x = rng.normal(size=(30, 16)).astype(ml_dtypes.bfloat16)
    ones = np.ones(16, np.float32)
    graph = _core.Graph()
    values = [
        graph.input(n, a.shape, a.dtype.name) for n, a in zip("xgb", (x, ones, ones), strict=True)
    ]
    wide = graph.apply("cast", values[:1], {"dtype": "float32"})[0]
    y = graph.apply("batch_norm", [wide, *values[1:]], {"epsilon": EPSILON})[0]
    both = graph.apply("reduce_sum", [wide], {"axes": [0], "keepdims": False})[0]
    found, _ = run(graph, [y, both, wide], (x, ones, ones))
    wanted = x.astype(np.float64)
    np.testing.assert_array_equal(found[2], wanted)
    np.testing.assert_allclose(found[1], wanted.sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[0], reference(wanted, 1.0, 1.0)[0], rtol=1e-5, atol=1e-5)

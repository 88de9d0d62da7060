"""Group normalization and its gradients, whatever kernels compute them, against float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from . import fusion_cases_group_norm, fusions, harness

CASES = [
    pytest.param(case, dtype, id=f"{case.id}-{dtype}")
    for case in fusion_cases_group_norm.GRADIENTS
    for dtype in case.dtypes
]
# Relative errors of norms. Inputs are exact, and arithmetic is in float32. Of 16 bits results are
# rounded, and so is what is between the normalization and an activation, and its gradient.
TOLERANCE = {"float32": 1e-5, "float16": 2.0**-9, "bfloat16": 2.0**-6}
# A mean of 20 deviations is rounded to 2^-24 of that, and so is what differs from it.
FAR = 20


@pytest.fixture(autouse=True)
def kernels_of_their_own(monkeypatch):
    monkeypatch.setenv(fusion_cases_group_norm.SWITCH, "1")


def activated(y, name):
    """Returns an activation of y and its slope."""
    if name == "":
        return y, np.ones_like(y)
    if name == "relu":
        return np.maximum(y, 0), (y > 0).astype(y.dtype)
    if name == "tanh":
        return np.tanh(y), 1 - np.tanh(y) ** 2
    share = 1 / (1 + np.exp(-y))
    if name == "silu":
        return y * share, share * (1 + y * (1 - share))
    if name == "softplus":
        return np.logaddexp(0, y), share
    density = np.exp(-(y**2) / 2) / np.sqrt(2 * np.pi)
    below = (1 + np.vectorize(math.erf, otypes=[float])(y / np.sqrt(2))) / 2
    return y * below, below + y * density


def reference(x, gamma, beta, gy, *, groups, epsilon, activation):
    x, gamma, beta, gy = (each.astype(np.float64) for each in (x, gamma, beta, gy))
    images = (len(x), -1, groups, x.shape[-1] // groups)
    over = {"axis": (1, 3), "keepdims": True}
    wide = x.reshape(images)
    inverse = 1 / np.sqrt(wide.var(**over) + epsilon)
    z = (wide - wide.mean(**over)) * inverse
    y, slope = activated(z.reshape(x.shape) * gamma + beta, activation)
    by_y = gy * slope
    by_z = (by_y * gamma).reshape(images)
    by_x = inverse * (by_z - by_z.mean(**over) - z * (by_z * z).mean(**over))
    axes = tuple(range(x.ndim - 1))
    return [y, by_x.reshape(x.shape), (by_y * z.reshape(x.shape)).sum(axes), by_y.sum(axes)]


@pytest.mark.parametrize(("case", "dtype"), CASES)
def test_group_normalization_and_its_gradients(case, dtype, device, rng):
    """On a GPU both passes have a kernel of their own, or none. Two runs have the same bits."""
    if device == "cpu" and case.id.startswith("large"):
        pytest.skip("the size is one that kernels of a GPU take differently")
    inputs, attributes = harness.draw(case, rng, dtype)
    program = fusions.compile_nodes(case.op, inputs, attributes, device, optimize=True)
    taken = device != "cpu" and case.id not in fusion_cases_group_norm.NOT_TAKEN
    taken &= dtype == "float32" or case.id not in fusion_cases_group_norm.WIDE_ONLY
    assert fusions.is_fused(program, "group_norm") == taken
    assert fusions.is_fused(program, "group_norm_grad") == taken
    first, second = (fusions.run(program, inputs, device) for _ in range(2))
    limit = TOLERANCE[dtype] + (FAR * 2.0**-21 if case.id == "far_from_zero" else 0)
    for got, again, expected in zip(first, second, reference(*inputs, **attributes), strict=True):
        assert got.tobytes() == again.tobytes()
        error = np.linalg.norm(got.astype(np.float64) - expected)
        assert error <= limit * np.linalg.norm(expected)


def test_regions_run_where_the_switch_is_off(device, rng, monkeypatch):
    monkeypatch.delenv(fusion_cases_group_norm.SWITCH)
    case = next(case for case in fusion_cases_group_norm.GRADIENTS if case.id == "usual")
    inputs, attributes = harness.draw(case, rng, "float32")
    program = fusions.compile_nodes(case.op, inputs, attributes, device, optimize=True)
    assert not fusions.is_fused(program, "group_norm")
    assert not fusions.is_fused(program, "group_norm_grad")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_group(value, dtype, device, rng):
    """All of the group is NaN, forward and backward; other groups and samples are as without."""
    case = next(case for case in fusion_cases_group_norm.GRADIENTS if case.id == "usual")
    inputs, attributes = harness.draw(case, rng, dtype)
    program = fusions.compile_nodes(case.op, inputs, attributes, device, optimize=True)
    plain = fusions.run(program, inputs, device)[:2]
    members = inputs[0].shape[-1] // attributes["groups"]
    hit = (1, ..., slice(2 * members, 3 * members))
    inputs[0][1, 5, 7, 2 * members + 1] = value
    for got, expected in zip(fusions.run(program, inputs, device)[:2], plain, strict=True):
        assert np.isnan(got[hit].astype("float32")).all()
        got[hit] = expected[hit] = 0
        np.testing.assert_array_equal(got, expected)


def test_a_group_of_equal_numbers_has_no_deviation(device):
    """Its inverse deviation is that of epsilon alone, and nothing is divided by zero."""
    x = np.full((3, 7, 5, 12), 1234.567, np.float32)
    gamma, beta = np.ones(12, np.float32), np.linspace(-1, 1, 12, dtype=np.float32)
    gy = np.zeros_like(x)
    attributes = {"groups": 4, "epsilon": 1e-3, "activation": ""}
    inputs = [x, gamma, beta, gy]
    program = fusions.compile_nodes("group_norm_grad", inputs, attributes, device, optimize=True)
    y, dx, dgamma, dbeta = fusions.run(program, inputs, device)
    np.testing.assert_allclose(y, np.broadcast_to(beta, x.shape), atol=0.01)
    for each in (dx, dgamma, dbeta):
        assert not each.any()

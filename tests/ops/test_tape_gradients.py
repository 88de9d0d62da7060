"""Tapes' first and second derivatives of every op are compared with float64 differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kerascnn import _core

from . import harness
from .cases import CASES
from .harness import GradientCheck, draw

CHECKED = [
    case
    for case in CASES
    if case.gradient and not case.large and _core.op_info(case.op)["differentiable"]
]
DIFFERENTIABLE = sorted({case.op for case in CHECKED})
# In float64 the only error is that of the numerical derivative, about 1e-10 of its terms.
FIRST_TOLERANCE = 1e-8
# The terms of these differences of first-order gradients are larger than the differences.
SECOND_TOLERANCE = 1e-6


class EagerGradients:
    """Differentiates a case's sum of <outputs, weights> with tapes."""

    def __init__(self, case, rng):
        self.case = case
        self.inputs, self.attributes = draw(case, rng, "float64")
        self.check = GradientCheck(case, self.inputs, self.attributes, rng)
        self.wrt = self.check.wrt

    def loss(self, tensors, device):
        outputs = _core.apply(self.case.op, tensors, self.attributes)
        total = None
        for i, weight in self.check.weights.items():
            product = outputs[i] * _core.from_numpy(weight, device)
            term = _core.apply("reduce_sum", [product], {"axes": [], "keepdims": False})[0]
            total = term if total is None else total + term
        return total

    def first(self, device, arrays=None):
        tensors = harness.to_device(arrays or self.inputs, device)
        tape = _core.Tape(False, True)
        tape.start()
        for i in self.wrt:
            tape.watch(tensors[i])
        loss = self.loss(tensors, device)
        tape.stop()
        found = tape.gradients([loss], [None], [tensors[i] for i in self.wrt])
        return dict(zip(self.wrt, found, strict=True))

    def second(self, device, directions):
        """Returns gradients of <first, directions>, or the ValueError of a rule that has none."""
        tensors = harness.to_device(self.inputs, device)
        outer, inner = _core.Tape(False, True), _core.Tape(False, True)
        outer.start()
        for i in self.wrt:
            outer.watch(tensors[i])
        inner.start()
        for i in self.wrt:
            inner.watch(tensors[i])
        loss = self.loss(tensors, device)
        first = inner.gradients([loss], [None], [tensors[i] for i in self.wrt])
        total = None
        for i, gradient in zip(self.wrt, first, strict=True):
            product = gradient * _core.from_numpy(directions[i], device)
            term = _core.apply("reduce_sum", [product], {"axes": [], "keepdims": False})[0]
            total = term if total is None else total + term
        outer.stop()
        found = outer.gradients([total], [None], [tensors[i] for i in self.wrt])
        return dict(zip(self.wrt, found, strict=True))


def prepared(case, rng):
    if "float64" not in case.dtypes:
        pytest.skip(f"{case} has no floating inputs")
    eager = EagerGradients(case, rng)
    if not eager.wrt or not eager.check.weights:
        pytest.skip(f"{case} has no floating inputs or outputs")
    return eager


@pytest.fixture(autouse=True)
def exact_arithmetic():
    with harness.tf32_off():
        yield


@pytest.mark.parametrize("case", CHECKED, ids=str)
def test_first_order(case, device, rng):
    eager = prepared(case, rng)
    gradients = {i: np.array(g.numpy()) for i, g in eager.first(device).items()}
    traced = eager.check.analytic(device, optimize=False)
    for i in eager.wrt:
        # The rule is the same, but a program may add the gradients of several paths in another
        # order.
        harness.assert_close(gradients[i], traced[i], 1e-13, f"{case} input {i} on {device}")
    directions = {i: harness.random_like(rng, eager.inputs[i]) for i in eager.wrt}
    slope = sum(float((g * directions[i]).sum()) for i, g in gradients.items())
    scale = sum(np.linalg.norm(g) * np.linalg.norm(directions[i]) for i, g in gradients.items())
    numerical = eager.check.numerical(directions)
    bound = FIRST_TOLERANCE * (scale + abs(eager.check.loss_of(eager.inputs)) + 1e-3)
    assert abs(slope - numerical) <= bound, f"{case}: {slope:.12g}, numerically {numerical:.12g}"


def second_order(case, device, rng):
    """Returns the second derivative along two directions and its reference, or None."""
    eager = prepared(case, rng)
    along = {i: harness.random_like(rng, eager.inputs[i]) for i in eager.wrt}
    moved = {i: harness.random_like(rng, eager.inputs[i]) for i in eager.wrt}
    try:
        found = eager.second(device, along)
    except ValueError as error:
        assert "is not differentiable" in str(error) or "is not defined" in str(error)
        return None
    slope = sum(float((g.numpy() * moved[i]).sum()) for i, g in found.items() if g is not None)
    scale = sum(
        float(np.linalg.norm(g.numpy()) * np.linalg.norm(moved[i]))
        for i, g in found.items()
        if g is not None
    )

    def at(t):
        arrays = list(eager.inputs)
        for i, direction in moved.items():
            arrays[i] = eager.inputs[i] + t * direction
        found = eager.first("cpu", arrays)
        return sum(float((g.numpy() * along[i]).sum()) for i, g in found.items())

    step = 1e-4
    numerical = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)
    return slope, numerical, scale + abs(at(0.0)) + 1e-3


SECOND = {}
for _case in CHECKED:
    SECOND.setdefault(_case.op, []).append(_case)


@pytest.mark.parametrize("op", DIFFERENTIABLE)
def test_second_order(op, device, rng):
    for case in SECOND[op][:3]:
        if "float64" not in case.dtypes:
            continue
        result = second_order(case, device, rng)
        if result is None:
            continue
        slope, numerical, scale = result
        assert abs(slope - numerical) <= SECOND_TOLERANCE * scale, (
            f"{case}: {slope:.12g}, numerically {numerical:.12g}"
        )


def orders(op, rng):
    """Returns what docs/autodiff.md says of an op."""
    info = _core.op_info(op)
    if not info["differentiable"]:
        return f"no: {info['reason']}"
    if op == "stop_gradient":
        return "none passes, as asked for"
    cases = [case for case in SECOND[op] if "float64" in case.dtypes]
    results = [second_order(case, "cpu", rng) for case in cases[:3]]
    return "first" if any(result is None for result in results) else "first and second"


def test_the_table_of_the_docs_is_true(rng):
    path = Path(__file__).parents[2] / "docs" / "autodiff.md"
    lines = path.read_text(encoding="utf-8").splitlines()
    start = lines.index("| op | gradients |") + 2
    table = {}
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        name, order = (cell.strip() for cell in line.strip("|").split("|"))
        table[name.strip("`")] = order
    assert table == {op: orders(op, rng) for op in _core.op_names()}

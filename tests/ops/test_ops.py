"""Every op on every device is compared with float64 NumPy: forward, gradient, compiled, errors."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kerascnn import _core

from . import harness
from .case import Case
from .cases import BAD, CASES, OF_PASSES
from .harness import GradientCheck, assert_close, draw, expected, run_eager, run_program

FORWARD = [(case, dtype) for case in CASES for dtype in case.dtypes]
SMALL = [case for case in CASES if not case.large]
OP_NAMES = [name for name in _core.op_names() if name not in OF_PASSES]
# In float64 the only error is that of the numerical derivative, about 1e-10 of its terms.
GRADIENT_TOLERANCE = 1e-8


def is_differentiable(case: Case) -> bool:
    return _core.op_info(case.op)["differentiable"]


def program_dtype(case: Case) -> str:
    return "float32" if "float32" in case.dtypes else case.dtypes[0]


@pytest.fixture(autouse=True)
def exact_arithmetic():
    with harness.tf32_off():
        yield


@pytest.mark.parametrize(("case", "dtype"), FORWARD, ids=lambda value: str(value))
def test_forward(case, dtype, device, rng):
    inputs, attributes = draw(case, rng, dtype)
    wanted = expected(case, inputs, attributes)
    outputs = run_eager(case, inputs, attributes, device)
    assert len(outputs) == len(wanted)
    result_dtype = case.result_dtype or attributes.get("dtype", dtype)
    least = harness.least_norms(case, inputs, attributes)
    for i, (actual, correct) in enumerate(zip(outputs, wanted, strict=True)):
        if harness.is_floating(actual):
            assert actual.dtype.name == result_dtype
        tolerance = max(
            harness.tolerance_of(case, dtype), harness.tolerance_of(case, actual.dtype.name)
        )
        assert_close(actual, correct, tolerance, f"{case} {dtype} output {i} on {device}", least[i])


@pytest.mark.parametrize("case", [c for c in SMALL if c.gradient and is_differentiable(c)], ids=str)
def test_gradient(case, device, rng):
    if "float64" not in case.dtypes:
        pytest.skip(f"{case} has no floating inputs")
    inputs, attributes = draw(case, rng, "float64")
    check = GradientCheck(case, inputs, attributes, rng)
    if not check.wrt or not check.weights:
        pytest.skip(f"{case} has no floating inputs or outputs")
    gradients = check.analytic(device, optimize=True)
    for name, gradient in gradients.items():
        assert gradient.shape == inputs[name].shape
        assert gradient.dtype == np.float64
    for _ in range(2):
        directions = {i: harness.random_like(rng, inputs[i]) for i in check.wrt}
        slope = sum(float((g * directions[i]).sum()) for i, g in gradients.items())
        scale = sum(np.linalg.norm(g) * np.linalg.norm(directions[i]) for i, g in gradients.items())
        numerical = check.numerical(directions)
        # The bound includes the loss itself, because the difference of two losses cancels.
        bound = GRADIENT_TOLERANCE * (scale + abs(check.loss_of(inputs)) + 1e-3)
        assert abs(slope - numerical) <= bound, (
            f"{case} on {device}: derivative {slope:.12g} along a random direction, "
            f"numerically {numerical:.12g}"
        )


@pytest.mark.parametrize("case", [c for c in SMALL if c.gradient and is_differentiable(c)], ids=str)
def test_gradient_without_optimization_is_the_same(case, device, rng):
    if "float64" not in case.dtypes:
        pytest.skip(f"{case} has no floating inputs")
    inputs, attributes = draw(case, rng, "float64")
    check = GradientCheck(case, inputs, attributes, rng)
    if not check.wrt or not check.weights:
        pytest.skip(f"{case} has no floating inputs or outputs")
    optimized = check.analytic(device, optimize=True)
    plain = check.analytic(device, optimize=False)
    for i in check.wrt:
        # Passes may reorder arithmetic, so gradients may differ by a few roundings of float64.
        assert_close(optimized[i], plain[i], 1e-13, f"{case} input {i}")


@pytest.mark.parametrize("case", SMALL, ids=str)
@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
def test_program_gives_what_eager_gives(case, optimize, device, rng):
    dtype = program_dtype(case)
    inputs, attributes = draw(case, rng, dtype)
    eager = run_eager(case, inputs, attributes, device)
    compiled = run_program(case, inputs, attributes, device, optimize=optimize)
    in_place = run_program(case, inputs, attributes, device, optimize=optimize, dying_inputs=True)
    for i, wanted in enumerate(eager):
        for what, outputs in (("compiled", compiled), ("over its inputs", in_place)):
            # The kernels are the same, so the bits are too.
            np.testing.assert_array_equal(
                outputs[i], wanted, err_msg=f"{case} {what}, output {i} on {device}"
            )


@pytest.mark.parametrize(("case", "dtype"), FORWARD, ids=lambda value: str(value))
def test_devices_agree(case, dtype, cuda_device, rng):
    inputs, attributes = draw(case, rng, dtype)
    on_cpu = run_eager(case, inputs, attributes, "cpu")
    on_gpu = run_eager(case, inputs, attributes, cuda_device)
    least = harness.least_norms(case, inputs, attributes)
    for actual, wanted, norm in zip(on_gpu, on_cpu, least, strict=True):
        if case.op in ("random_uniform", "random_bernoulli", "dropout"):
            np.testing.assert_array_equal(actual, wanted)
            continue
        wanted = wanted.astype(np.float64) if harness.is_floating(wanted) else wanted
        assert_close(actual, wanted, 2 * harness.tolerance_of(case, dtype), f"{case} {dtype}", norm)


TF32 = [
    case
    for case in CASES
    # Probabilities lose more digits than logits. test_tf32_products.py has exact logits.
    if case.op.startswith(("conv2d", "matmul", "dense"))
    and "cross_entropy" not in case.op
    and "float32" in case.dtypes
]


@pytest.mark.parametrize("case", TF32, ids=str)
def test_tf32(case, cuda_device, rng):
    inputs, attributes = draw(case, rng, "float32")
    wanted = expected(case, inputs, attributes)
    least = harness.least_norms(case, inputs, attributes)
    _core.set_allow_tf32(True)  # exact_arithmetic restores it after the test
    outputs = run_eager(case, inputs, attributes, cuda_device)
    for actual, correct, norm in zip(outputs, wanted, least, strict=True):
        # TF32 keeps 10 bits after the first, so each of a product's two factors loses at most 1.31
        # * 2^-11. The error is compared with 0.3 of the sum over absolute values, because one of
        # many results cancels further.
        assert_close(actual, correct, 1.31 * 2.0**-10, f"{case} with TF32", 15 * norm)


def named(op: str, text: str) -> bool:
    """Whether a message begins with the op's name; a custom op's own name follows it."""
    return re.match(f"{op}(?: \\w+)?:", text) is not None


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_bad_call(bad, device):
    inputs = harness.to_device([np.asarray(x) for x in bad.inputs], device)
    with pytest.raises(bad.error) as eager:
        _core.apply(bad.op, inputs, bad.attributes)
    graph = _core.Graph()
    values = [
        graph.input(f"x{i}", np.shape(x), np.asarray(x).dtype.name)
        for i, x in enumerate(bad.inputs)
    ]
    with pytest.raises(bad.error) as traced:
        graph.apply(bad.op, values, bad.attributes)
    for error in (eager, traced):
        assert named(bad.op, str(error.value))
        assert bad.message in str(error.value)


def first_case(op: str) -> Case:
    return next(case for case in CASES if case.op == op)


@pytest.mark.parametrize("op", OP_NAMES)
def test_missing_attributes_and_inputs_are_named(op, rng):
    case = first_case(op)
    inputs, attributes = draw(case, rng, case.dtypes[0])
    tensors = harness.to_device(inputs, "cpu")
    for name in attributes:
        without = {key: value for key, value in attributes.items() if key != name}
        with pytest.raises(ValueError, match=f'^{op}: attribute "{name}" is missing$'):
            _core.apply(op, tensors, without)
    with pytest.raises(ValueError, match=f"^{op}(?: \\w+)?: expected .*received (0|none)"):
        _core.apply(op, [], attributes)
    if op not in ("all_reduce", "cast_all", "concatenate"):  # these take any number of inputs
        with pytest.raises(
            ValueError, match=f"^{op}(?: \\w+)?: expected .* received {len(inputs) + 9}$"
        ):
            _core.apply(op, tensors + [tensors[-1]] * 9, attributes)


@pytest.mark.parametrize(
    "op", [name for name in OP_NAMES if not _core.op_info(name)["differentiable"]]
)
def test_gradient_through_an_op_without_one(op, rng):
    case = first_case(op)
    inputs, attributes = draw(case, rng, case.dtypes[0])
    outputs = expected(case, inputs, attributes)
    wrt = [i for i, x in enumerate(inputs) if harness.is_floating(x)]
    floating = [i for i, y in enumerate(outputs) if harness.is_floating(y)]
    graph = _core.Graph()
    values = [graph.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(inputs)]
    results = graph.apply(op, values, attributes)
    if not floating:
        # These are functions of integers.
        known = op in ("argmax", "argsort", "isfinite") or not wrt
        assert known or results[0].dtype in ("bool", "int64", "float32")
        return
    loss = graph.apply("reduce_sum", [results[floating[0]]], {"axes": [], "keepdims": False})[0]
    if not wrt:
        assert graph.gradients(loss, values) == [None] * len(values)
        return
    with pytest.raises(ValueError, match=f'"{op}" is not differentiable: ') as error:
        graph.gradients(loss, [values[wrt[0]]])
    assert _core.op_info(op)["reason"] in str(error.value)


def test_an_unknown_op_is_named():
    with pytest.raises(ValueError, match='there is no op named "convolve"'):
        _core.apply("convolve", [], {})

"""Runs a case at once, in a compiled program, and through its gradient, and compares arrays."""

from __future__ import annotations

import contextlib

import numpy as np

from kerascnn import _core

from .case import TOLERANCE, Array, Attributes, Call, Case, Rng
from .reference import REFERENCES, is_float_name, numpy_dtype


def is_floating(array: Array) -> bool:
    """This includes bfloat16, which is not a floating dtype to NumPy."""
    return is_float_name(array.dtype.name)


def draw(case: Case, rng: Rng, dtype: str) -> Call:
    """Returns the case's inputs in that dtype, and its attributes."""
    inputs, attributes = case.make(rng, dtype)
    converted = []
    for x in map(np.asarray, inputs):
        # float64 arrays get the tested dtype; others, such as float32 learning rates, stay as they
        # are.
        is_tested = x.dtype == np.float64 and is_float_name(dtype)
        converted.append(np.ascontiguousarray(x.astype(numpy_dtype(dtype)) if is_tested else x))
    # ascontiguousarray gives a scalar an axis, which is removed here.
    converted = [
        x.reshape(np.shape(original)) for x, original in zip(converted, inputs, strict=True)
    ]
    return converted, attributes


def expected(case: Case, inputs: list[Array], attributes: Attributes) -> list[Array]:
    """Returns the reference's outputs for float64 inputs, so that rounding counts once."""
    wide = [x.astype(np.float64) if is_floating(x) else x for x in inputs]
    with np.errstate(all="ignore"):
        outputs = REFERENCES[case.op](*wide, **attributes)
    return [np.asarray(y) for y in (outputs if isinstance(outputs, tuple) else (outputs,))]


def to_device(inputs: list[Array], device: str) -> list[_core.Tensor]:
    return [_core.from_numpy(x, device) for x in inputs]


def run_eager(case: Case, inputs: list[Array], attributes: Attributes, device: str) -> list[Array]:
    outputs = _core.apply(case.op, to_device(inputs, device), attributes)
    return [np.array(y.numpy()) for y in outputs]


def run_program(
    case: Case,
    inputs: list[Array],
    attributes: Attributes,
    device: str,
    *,
    optimize: bool,
    num_outputs: int | None = None,
    dying_inputs: bool = False,
) -> list[Array]:
    """Runs the op in a program that reads its first `num_outputs` outputs.

    With `dying_inputs` the op's inputs are results of other ops that no later node reads, so that
    the memory plan may let the op write over them.
    """
    graph = _core.Graph()
    values, arrays = [], []
    for i, x in enumerate(inputs):
        value = graph.input(f"x{i}", x.shape, x.dtype.name)
        arrays.append(x)
        if dying_inputs and x.dtype != np.bool_:
            zero = graph.input(f"zero{i}", x.shape, x.dtype.name)
            arrays.append(np.zeros_like(x))
            value = graph.apply("add", [value, zero], {})[0]
        values.append(value)
    outputs = graph.apply(case.op, values, attributes)[:num_outputs]
    program = _core.Program.compile(graph, outputs, device, optimize=optimize, allow_tf32=False)
    program.run(to_device(arrays, device))
    return [np.array(y.numpy()) for y in program.outputs()]


# These are sums of products of inputs. With random signs a result may cancel to almost nothing, and
# its relative error then says more about the inputs than about the kernel.
SUMS = {
    *("reduce_sum", "reduce_mean", "matmul", "dense", "conv2d", "conv2d_dgrad", "conv2d_wgrad"),
    *("avg_pool2d", "avg_pool2d_grad", "max_pool2d_grad", "gather_grad"),
    *("resize2d", "resize2d_grad"),
}
# An update adds an old state and a gradient. A stack of partial sums is rounded to its dtype first.
UPDATES = {"sgd_update", "adam_update"}


def least_norms(case: Case, inputs: list[Array], attributes: Attributes) -> list[float]:
    """Returns for each output the least norm that its error is compared with.

    That is what the case says. For sums it is 2 % of the norm of the same sum over absolute values;
    a result that has not cancelled further is compared with its own norm. Updates have two or three
    terms, and a tensor may have one element, so for them it is the whole of that norm.
    """
    if case.op == "batch_norm_grad":
        gy, x, _, mean, inverse = (array.astype(np.float64) for array in inputs)
        rows = tuple(range(x.ndim - 1))
        sums = [np.abs(gy * (x - mean) * inverse).sum(rows), np.abs(gy).sum(rows)]
        return [0.0, *(0.02 * float(np.linalg.norm(y)) for y in sums)]
    count = len(expected(case, inputs, attributes))
    # Gradients are linear in the terms of their sums, whatever the activation.
    is_linear = "grad" in case.op or attributes.get("activation", "linear") == "linear"
    if case.op not in SUMS | UPDATES or not is_linear:
        return [case.least_norm] * count
    positive = [np.abs(x) if is_floating(x) else x for x in inputs]
    if case.op in UPDATES:
        # sgd_update subtracts gradients from momenta, and adam_update adds them.
        signs = [{"gradients": -1.0}, {"gradients": -1.0, "momenta": -1.0}]
        each = [
            expected(case, with_signs(case, positive, attributes, **sign), attributes)
            for sign in signs
        ]
        return [max(float(np.linalg.norm(y)) for y in ys) for ys in zip(*each, strict=True)]
    return [0.02 * float(np.linalg.norm(y)) for y in expected(case, positive, attributes)]


def with_signs(
    case: Case, inputs: list[Array], attributes: Attributes, gradients=1.0, momenta=1.0
) -> list[Array]:
    """Multiplies the gradients and momenta among an update's inputs by signs."""
    count = attributes["count"]
    first = {"sgd_update": 1, "adam_update": 2}[case.op] + count
    signs = dict.fromkeys(range(first, first + count), gradients)
    signs |= dict.fromkeys(range(first + count, first + 2 * count), momenta)
    return [x * x.dtype.type(signs[i]) if i in signs else x for i, x in enumerate(inputs)]


def relative_error(actual: Array, wanted: Array, least_norm: float = 0.0) -> float:
    """Returns the error's norm over the finite elements; it is infinite if the others differ."""
    actual = actual.astype(np.float64)
    finite = np.isfinite(wanted)
    same = np.array_equal(actual[~finite], wanted[~finite], equal_nan=True)
    if not same or not np.isfinite(actual[finite]).all():
        return np.inf
    # Scaling keeps the squares from overflowing or vanishing.
    scale = np.abs(wanted[finite]).max(initial=0.0) or 1.0
    norm = max(np.linalg.norm(wanted[finite] / scale), least_norm / scale) or 1.0
    return float(np.linalg.norm((actual[finite] - wanted[finite]) / scale) / norm)


def assert_close(
    actual: Array, wanted: Array, tolerance: float, what: str, least_norm: float = 0.0
) -> None:
    assert actual.shape == wanted.shape, f"{what}: shape {actual.shape}, expected {wanted.shape}"
    if not is_floating(actual):
        assert actual.dtype == wanted.dtype, f"{what}: {actual.dtype}, expected {wanted.dtype}"
        np.testing.assert_array_equal(actual, wanted, err_msg=what)
        return
    assert wanted.dtype == np.float64, f"{what}: {actual.dtype}, expected {wanted.dtype}"
    with np.errstate(all="ignore"):
        # What overflows in the result's dtype is infinite there.
        wanted = np.where(
            np.isinf(wanted.astype(actual.dtype)), np.copysign(np.inf, wanted), wanted
        )
    error = relative_error(actual, wanted, least_norm)
    assert error <= tolerance, (
        f"{what}: relative error {error:.3g} exceeds {tolerance:.3g}\n"
        f"actual:   {np.ravel(actual)[:8]}\nexpected: {np.ravel(wanted)[:8]}"
    )


def tolerance_of(case: Case, dtype: str) -> float:
    return case.tolerance.get(dtype, TOLERANCE.get(dtype, 0.0))


def random_like(rng: Rng, array: Array) -> Array:
    return rng.standard_normal(array.shape)


class GradientCheck:
    """loss = sum of <outputs, weights>, differentiated by the graph and numerically."""

    def __init__(self, case: Case, inputs: list[Array], attributes: Attributes, rng: Rng) -> None:
        self.case, self.inputs, self.attributes = case, inputs, attributes
        outputs = expected(case, inputs, attributes)
        floating = [i for i, y in enumerate(outputs) if is_floating(y)]
        self.loss_outputs = case.loss_outputs or tuple(floating)
        self.weights = {i: random_like(rng, outputs[i]) for i in self.loss_outputs}
        self.wrt = [i for i, x in enumerate(inputs) if x.dtype == np.float64]

    def loss_of(self, inputs: list[Array]) -> float:
        outputs = expected(self.case, inputs, self.attributes)
        return sum(float((outputs[i] * w).sum()) for i, w in self.weights.items())

    def numerical(self, directions: dict[int, Array]) -> float:
        """Returns the fourth-order difference along the direction.

        The step balances truncation, step^4, against the rounding of the loss, 1e-16 / step.
        """
        step = 1e-4

        def at(t: float) -> float:
            moved = list(self.inputs)
            for i, direction in directions.items():
                moved[i] = self.inputs[i] + t * direction
            return self.loss_of(moved)

        return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)

    def graph(self) -> tuple[_core.Graph, list[_core.Value | None], list[Array]]:
        """Returns the graph, its gradients for `wrt`, and the arrays of its inputs."""
        graph = _core.Graph()
        values = [graph.input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(self.inputs)]
        outputs = graph.apply(self.case.op, values, self.attributes)
        arrays, loss = list(self.inputs), None
        for i, weight in self.weights.items():
            arrays.append(weight)
            weights = graph.input(f"w{i}", weight.shape, "float64")
            product = graph.apply("multiply", [outputs[i], weights], {})[0]
            term = graph.apply("reduce_sum", [product], {"axes": [], "keepdims": False})[0]
            loss = term if loss is None else graph.apply("add", [loss, term], {})[0]
        return graph, graph.gradients(loss, [values[i] for i in self.wrt]), arrays

    def analytic(self, device: str, optimize: bool) -> dict[int, Array]:
        """Returns the gradient for each input in `wrt`."""
        graph, gradients, arrays = self.graph()
        missing = [i for i, g in zip(self.wrt, gradients, strict=True) if g is None]
        assert not missing, f"{self.case}: no gradient for inputs {missing}"
        program = _core.Program.compile(
            graph, gradients, device, optimize=optimize, allow_tf32=False
        )
        program.run(to_device(arrays, device))
        arrays = [np.array(g.numpy()) for g in program.outputs()]
        return dict(zip(self.wrt, arrays, strict=True))


@contextlib.contextmanager
def tf32_off():
    """Turns TF32 off, so that float32 arithmetic has all its digits on every device."""
    before = _core.allow_tf32()
    _core.set_allow_tf32(False)
    try:
        yield
    finally:
        _core.set_allow_tf32(before)

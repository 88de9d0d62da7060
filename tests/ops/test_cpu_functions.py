"""Functions of float32 that the CPU computes by vectors: their accuracy, and bits in all widths."""

import numpy as np
import pytest

from kerascnn import _core

from .test_cpu_vectors import INSTRUCTION_SETS, apply_all_with

# How far a result may be from that of float64, in units in the last place of float32: the headers
# host_angles.h and host_math.h of the core promise it.
UNARY = {
    "sin": (np.sin, 0.51),
    "cos": (np.cos, 0.51),
    "tan": (np.tan, 2.0),
    "arcsin": (np.arcsin, 1.2),
    "arccos": (np.arccos, 1.2),
    "arctan": (np.arctan, 1.5),
    "sinh": (np.sinh, 2.0),
    "cosh": (np.cosh, 1.5),
    "arcsinh": (np.arcsinh, 2.5),
    "arccosh": (np.arccosh, 2.5),
    "arctanh": (np.arctanh, 2.5),
}
BINARY = ["arctan2", "mod", "floor_divide"]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-40, 3e38, 2.0**20, 1e7, 0.5]


def any_floats(rng):
    """Returns floats of all exponents, then some of about 1, then special ones."""
    drawn = rng.integers(0, 2**32, 20011, dtype=np.uint32).view(np.float32)
    near = rng.uniform(-8, 8, 5003).astype(np.float32)
    inside = rng.uniform(-1, 1, 5003).astype(np.float32)
    return np.concatenate([drawn, near, inside, np.array(SPECIAL, np.float32)])


def pairs(rng):
    """Returns pairs of any floats, of near ones, of multiples, and of all special ones."""
    a, b = any_floats(rng), rng.permutation(any_floats(rng))
    near = rng.uniform(-8, 8, (2, 5003)).astype(np.float32)
    step = np.full(1001, 0.1, np.float32)
    multiples = rng.integers(-1000, 1000, 1001).astype(np.float32) * step
    special = np.array(np.meshgrid(SPECIAL, SPECIAL), np.float32).reshape(2, -1)
    return (
        np.concatenate([a, near[0], multiples, special[0]]),
        np.concatenate([b, near[1], step, special[1]]),
    )


def check_units(found, wanted, bound):
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = wanted.astype(np.float32)
    exact = ~np.isnan(wanted) & (np.isinf(rounded) | np.isinf(found) | (rounded == 0))
    np.testing.assert_array_equal(found[exact].view(np.int32), rounded[exact].view(np.int32))
    rest = ~np.isnan(wanted) & ~exact
    size = np.maximum(np.abs(rounded[rest]), np.finfo(np.float32).tiny)
    error = np.abs(found[rest] - wanted[rest]) / np.spacing(size).astype(np.float64)
    assert error.max() <= bound


def bits(arrays):
    """All NaNs are one."""
    return [np.where(np.isnan(a), np.float32(np.nan), a).view(np.int32) for a in arrays]


@pytest.fixture(scope="module")
def calls():
    rng = np.random.default_rng(20)
    x, (a, b) = any_floats(rng), pairs(rng)
    rows = [(op, [x]) for op in UNARY]
    for op in BINARY:
        # One number beside many is another loop; 20 of them are too few for it.
        rows += [
            (op, [a, b]),
            (op, [a, np.array([0.3], np.float32)]),
            (op, [np.array([-2.5], np.float32), b]),
            (op, [a[:20], np.array([-0.7], np.float32)]),
        ]
    return rows


@pytest.fixture(scope="module")
def results(calls, tmp_path_factory):
    """The results of the calls by instruction set, each of one process."""
    folder, given = tmp_path_factory.mktemp("functions"), [(*call, {}) for call in calls]
    return {n: [y for (y,) in apply_all_with(n, given, folder)] for n in INSTRUCTION_SETS}


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_every_width_gives_the_same_bits(name, results):
    for one, other in zip(results[name], results["plain"], strict=True):
        np.testing.assert_array_equal(*bits([one, other]))


@pytest.mark.parametrize("op", UNARY)
def test_functions_are_those_of_float64(op, calls, results):
    function, bound = UNARY[op]
    ((inputs, found),) = of_op(op, calls, results)
    with np.errstate(all="ignore"):
        check_units(found, function(inputs[0].astype(np.float64)), bound)


def of_op(op, calls, results):
    rows = zip(calls, results["plain"], strict=True)
    return [(inputs, found) for (name, inputs), found in rows if name == op]


def reference(op, a, b):
    """Computes in float32, which fmod is exact in."""
    if op == "arctan2":
        return np.arctan2(a.astype(np.float64), b.astype(np.float64))
    rest = np.fmod(a, b)
    is_other = (rest != 0) & ((rest < 0) != (b < 0))
    if op == "mod":
        return np.where(is_other, rest + b, rest)
    quotient = np.rint((a - rest) / b) - is_other.astype(np.float32)
    return np.where(b == 0, a / b, quotient)


@pytest.mark.parametrize("op", BINARY)
def test_functions_of_two_numbers(op, calls, results):
    for inputs, found in of_op(op, calls, results):
        with np.errstate(all="ignore"):
            wanted = reference(op, *np.broadcast_arrays(*inputs))
        if op == "arctan2":
            check_units(found, wanted, 2.0)
        else:
            np.testing.assert_array_equal(*bits([found, wanted]))


@pytest.mark.parametrize("start", [0, 1, 5])
def test_results_do_not_depend_on_an_elements_place(start, rng):
    """A view that begins anywhere, with any length, has the bits of the whole."""
    x = any_floats(rng)
    for op in UNARY:
        (whole,) = _core.apply(op, [_core.from_numpy(x, "cpu")], {})
        for length in (1, 7, 8, 9, 63, 64, 65, 1001):
            part = np.ascontiguousarray(x[-start - length : len(x) - start])
            (found,) = _core.apply(op, [_core.from_numpy(part, "cpu")], {})
            wanted = whole.numpy()[-start - length : len(x) - start]
            np.testing.assert_array_equal(*bits([found.numpy(), wanted]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("length", [2047, 2048, 2049, 2700, 5003])
def test_many_elements_have_the_bits_of_few(length, dtype, rng):
    """Memory of long tensors is asked for some blocks ahead, which must not leave anything out."""
    drawn = rng.normal(0, 3, (2, length)).astype(np.float32)

    def run(op, attributes, arrays):
        tensors = [_core.from_numpy(np.ascontiguousarray(x), "cpu") for x in arrays]
        tensors = [_core.apply("cast", [x], {"dtype": dtype})[0] for x in tensors]
        (result,) = _core.apply(op, tensors, attributes)
        return _core.apply("cast", [result], {"dtype": "float32"})[0].numpy()

    gelu = {"approximate": False}
    for op, attributes, operands in (
        ("gelu", gelu, 1),
        ("gelu_grad", gelu, 2),
        ("exp", {}, 1),
        ("add", {}, 2),
    ):
        arrays = drawn[:operands]
        parts = [run(op, attributes, arrays[:, i : i + 1000]) for i in range(0, length, 1000)]
        whole = run(op, attributes, arrays)
        np.testing.assert_array_equal(*bits([whole, np.concatenate(parts)]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("shape", [(1024, 16), (1031, 96), (1500, 17), (2001, 7), (1024, 1)])
def test_many_rows_have_the_bits_of_few(shape, dtype, rng):
    drawn = rng.normal(0, 100, shape).astype(dtype)
    attributes = {"axes": [1], "keepdims": False}
    for op in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min"):
        if op == "reduce_mean" and dtype == "int32":
            continue
        found, *parts = (
            _core.apply(op, [_core.from_numpy(x, "cpu")], attributes)[0].numpy()
            for x in (drawn, *(np.ascontiguousarray(x) for x in np.array_split(drawn, 5)))
        )
        np.testing.assert_array_equal(found, np.concatenate(parts))
        wanted = getattr(drawn.astype("float64"), op.removeprefix("reduce_"))(1)
        # The result is rounded once, and of float64 the sum after each term too.
        error = shape[1] * 1.2e-16 * np.abs(drawn.astype("float64")).sum(1)
        if dtype != "int32":
            limits = np.finfo(dtype)
            error += limits.eps * np.abs(wanted) + float(limits.smallest_subnormal)
        assert (np.abs(found - wanted) <= error).all()


def test_regions_compute_the_same_bits(rng):
    a, b = pairs(rng)
    tensors = [_core.from_numpy(x, "cpu") for x in (a, b)]
    graph = _core.Graph()
    values = [graph.input(name, a.shape, "float32") for name in "ab"]

    def compute(apply, a, b):
        total = apply("multiply", apply("sin", a), apply("cos", b))
        total = apply("add", total, apply("arctan2", a, b))
        total = apply("add", total, apply("arctan", apply("mod", a, b)))
        return apply("add", total, apply("tan", apply("floor_divide", b, a)))

    def record(op, *inputs):
        return graph.apply(op, list(inputs), {})[0]

    def run(op, *inputs):
        # The number is asked for, so that calls that wait are not made one region.
        (result,) = _core.apply(op, list(inputs), {})
        return _core.from_numpy(result.numpy(), "cpu")

    program = _core.Program.compile(graph, [compute(record, *values)], "cpu")
    (call,) = program.describe()
    assert "region" in call["kernel"]
    program.run(tensors)
    found = program.outputs()[0].numpy()
    np.testing.assert_array_equal(*bits([found, compute(run, *tensors).numpy()]))
